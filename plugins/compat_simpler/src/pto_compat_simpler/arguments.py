"""The arguments of a scene test: named tensors and scalars."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pto_compat_simpler.task_interface import scalar_to_uint64
from pto_core.errors import UsageError
from pto_core.errors.values import shown


class TensorArg:
    """A tensor argument: a torch tensor or another array."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value


class Scalar:
    """A scalar argument: a ``ctypes`` value or a number. A float is passed as a float32."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value


class TaskArgsBuilder:
    """The arguments in their order, tensors first. Each is also an attribute: ``args.NAME``."""

    def __init__(self, *arguments: TensorArg | Scalar) -> None:
        self._arguments: dict[str, TensorArg | Scalar] = {}
        for argument in arguments:
            self._add(argument)

    def add_tensor(self, name: str, value: Any) -> None:
        """Add a tensor."""
        self._add(TensorArg(name, value))

    def add_scalar(self, name: str, value: Any) -> None:
        """Add a scalar."""
        self._add(Scalar(name, value))

    def _add(self, argument: TensorArg | Scalar) -> None:
        if not isinstance(argument, TensorArg | Scalar):
            raise UsageError(
                f"{shown(argument)} is no argument; pass TensorArg(name, tensor) or "
                "Scalar(name, value)",
                name="arguments",
            )
        if argument.name in self._arguments:
            raise UsageError(f"two arguments have the name {argument.name!r}", name=argument.name)
        if isinstance(argument, TensorArg) and self._scalars():
            raise UsageError(
                f"the tensor {argument.name!r} follows a scalar; add all tensors first",
                name=argument.name,
            )
        self._arguments[argument.name] = argument

    def _scalars(self) -> list[Scalar]:
        return [one for one in self._arguments.values() if isinstance(one, Scalar)]

    def tensors(self) -> dict[str, Any]:
        """Return the tensors by their names, in order."""
        found = self._arguments.values()
        return {one.name: one.value for one in found if isinstance(one, TensorArg)}

    def scalars(self) -> list[int]:
        """Return the bits of the scalars, in order."""
        return [scalar_to_uint64(one.value) for one in self._scalars()]

    def clone(self, copied: Callable[[Any], Any] = copy.deepcopy) -> TaskArgsBuilder:
        """Return a copy with copies of the tensors, which ``copied`` makes."""
        return TaskArgsBuilder(
            *(
                TensorArg(one.name, copied(one.value)) if isinstance(one, TensorArg) else one
                for one in self._arguments.values()
            )
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__dict__.get("_arguments", {}):
            raise AttributeError(name)
        return self._arguments[name].value

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)
