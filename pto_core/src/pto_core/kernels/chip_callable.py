"""An orchestration together with the kernels that it may submit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_plain
from pto_core.errors.values import as_path, check_name, listed, shown
from pto_core.kernels.core_callable import (
    CoreCallable,
    KernelSource,
    compiler_options,
    content_digest,
)
from pto_core.kernels.digest import digest_of
from pto_core.kernels.direction import (
    Direction,
    Parameter,
    SignatureEntry,
    parameter_names,
    parameters_of_function,
    parse_signature,
    type_code,
)


@dataclass(frozen=True)
class OrchestrationSource:
    """A C++ source file with the function ``function_name``, which submits the tasks.

    None selects the default name of the runtime variant, if the variant has one.
    """

    path: Path
    function_name: str | None = None
    options: tuple[str, ...] = ()

    def __init__(
        self, path: str | Path, function_name: str | None = None, options: Iterable[str] = ()
    ) -> None:
        object.__setattr__(self, "path", as_path("path", path))
        object.__setattr__(self, "function_name", function_name)
        object.__setattr__(self, "options", compiler_options(options))


class ChipCallable:
    """An orchestration with its kernels. It is immutable, and equal only to itself.

    ``orchestration``: a Python function ``def graph(rt, *args)``, an :class:`OrchestrationSource`,
    or the path of a compiled library. ``children``: kernels by ``func_id``; a Python orchestration
    may also submit kernels that are not listed. ``signature``: the direction of every array, in
    order (``("in", "in", "out")``), or of every argument if it contains ``"scalar"``. Without it,
    the annotations of a Python orchestration apply; for a C++ orchestration, every array is copied
    in, and every writable array is copied back. ``argument_names`` are used in messages. Raises
    UsageError.
    """

    def __init__(
        self,
        orchestration: Callable[..., Any] | OrchestrationSource | Path | str,
        children: Mapping[int, CoreCallable] | Iterable[tuple[int, CoreCallable]] | None = None,
        signature: Iterable[SignatureEntry] | None = None,
        name: str | None = None,
        argument_names: Iterable[str] | None = None,
    ) -> None:
        if isinstance(orchestration, str):
            orchestration = Path(orchestration)
        if not isinstance(orchestration, OrchestrationSource | Path) and not callable(
            orchestration
        ):
            raise UsageError(
                f"{shown(orchestration)} is not an orchestration; pass a function, an "
                "OrchestrationSource or the path of a library",
                name="orchestration",
                value=orchestration,
            )
        _check_function(orchestration)
        self.orchestration = orchestration
        try:
            pairs = {} if children is None else dict(children)
        except (TypeError, ValueError):
            raise UsageError(
                f"children is {shown(children)}; pass a dict with a kernel for each func_id",
                name="children",
                value=children,
            ) from None
        self.children: Mapping[int, CoreCallable] = MappingProxyType(
            {_func_id(key, child): child for key, child in pairs.items()}
        )
        self.signature: tuple[Parameter, ...] | None = (
            None if signature is None else parse_signature(signature)
        )
        check_name(name)
        self.name = name or _name_of(orchestration)
        self.argument_names = (
            None
            if argument_names is None
            else listed("argument_names", argument_names, "pass a list of texts")
        )

    @property
    def function(self) -> Callable[..., Any] | None:
        """The Python function; None if the orchestration is C++."""
        found = self.orchestration
        return None if isinstance(found, OrchestrationSource | Path) else found

    @functools.cached_property
    def digest(self) -> bytes:
        """Return 32 bytes that identify the content. Raises UsageError if a file cannot be read."""
        children = (
            digest_of(str(func_id), child.digest)
            for func_id, child in sorted(self.children.items())
        )
        return digest_of("chip", *self._orchestration_parts(), repr(self.signature), *children)

    def parameters(self) -> tuple[list[str], int, int]:
        """Return the known argument names, and the smallest and largest number of arguments.

        A largest number of -1 means that there is no limit.
        """
        if self.function is not None:
            return parameter_names(self.function, skip=1)
        if self.signature is not None and self._is_by_argument():
            count = len(self.signature)
            return list(self.argument_names or ()), count, count
        return list(self.argument_names or ()), 0, -1

    def directions(self) -> tuple[list[Direction], bool]:
        """Return directions and a flag: true if they cover only the arrays, not all arguments."""
        if self.signature is not None:
            given, by_tensor = self.signature, not self._is_by_argument()
            return [_copied(parameter.direction) for parameter in given], by_tensor
        if self.function is not None:
            found = parameters_of_function(self.function, skip=1)
            return [_copied(direction) for direction, _ in found], False
        return [], False

    def type_codes(self) -> list[int]:
        """Return the declared DataType for each of the :meth:`directions`, or -1."""
        if self.signature is not None:
            return [type_code(parameter) for parameter in self.signature]
        if self.function is not None:
            return [code for _, code in parameters_of_function(self.function, skip=1)]
        return []

    def declared_scalars(self) -> list[int]:
        """Return the :meth:`type_codes` of the parameters that are declared as scalars."""
        declared = zip(self.directions()[0], self.type_codes(), strict=True)
        return [code for direction, code in declared if direction is Direction.SCALAR]

    def __repr__(self) -> str:
        return f"<ChipCallable {self.name!r} with {len(self.children)} kernels>"

    def _is_by_argument(self) -> bool:
        return any(p.direction is Direction.SCALAR for p in self.signature or ())

    def _orchestration_parts(self) -> tuple[str | bytes, ...]:
        found = self.orchestration
        if isinstance(found, OrchestrationSource):
            return found.function_name or "", content_digest(
                KernelSource(found.path, found.options)
            )
        return "", content_digest(found)


def _copied(direction: Direction) -> Direction:
    """Return the direction in which a run copies an array whose parameter has ``direction``."""
    if direction is Direction.NO_DEP:
        raise UsageError(
            "NoDep is a direction of task arguments; it does not state whether a run copies the "
            "array; declare the orchestration's argument In, Out or InOut",
            name="signature",
            value="NoDep",
            expected="In, Out or InOut",
        )
    return Direction.OUT if direction is Direction.OUT_EXISTING else direction


def _check_function(orchestration: object) -> None:
    if isinstance(orchestration, CoreCallable):
        raise UsageError(
            f"{orchestration.name!r} is a kernel, not an orchestration; pass a function that "
            "submits the kernel with rt.add_task",
            name="orchestration",
            value=orchestration,
        )
    require_plain("orchestration", orchestration)


def _func_id(key: object, child: object) -> int:
    func_id = integer(key, 0, 2**31 - 1)
    if func_id is None:
        raise UsageError(
            f"func_id {shown(key)} of {shown(child)} is not valid; use an integer from 0 to "
            "2**31 - 1",
            name="func_id",
            value=key,
        )
    if not isinstance(child, CoreCallable):
        raise UsageError(
            f"the kernel with func_id {func_id} is {shown(child)}; pass a CoreCallable or a "
            "@kernel",
            name="children",
            value=child,
        )
    return func_id


def _name_of(orchestration: Callable[..., Any] | OrchestrationSource | Path) -> str:
    if isinstance(orchestration, OrchestrationSource):
        return orchestration.function_name or orchestration.path.stem
    if isinstance(orchestration, Path):
        return orchestration.stem
    return str(getattr(orchestration, "__name__", type(orchestration).__name__))
