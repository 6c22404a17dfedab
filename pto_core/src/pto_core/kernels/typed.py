"""Types of functions that are submitted with their arguments.

A submit has options beside the arguments of its function, which a ParamSpec does not allow. So its
type is an overload for each number of arguments, from none to six; with more, the arguments are
not checked. An argument has the type of its parameter, or is a tensor that is no NumPy array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from typing_extensions import ParamSpec

    from pto_core._hierarchy import ContinuousTensor, TaskHandle
    from pto_core._native import DeviceArray
    from pto_core.kernels.call_config import CallConfig
    from pto_core.kernels.core_callable import CoreType
    from pto_core.kernels.direction import Parameter

    Parameters = ParamSpec("Parameters", default=...)
else:
    from typing import ParamSpec

    Parameters = ParamSpec("Parameters")

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")

Tensor: TypeAlias = "ContinuousTensor | HasDataPointer"
"""A submit of a session takes it for an array, as it takes NumPy arrays."""

Argument: TypeAlias = "DeviceArray | Parameter | ctypes._SimpleCData[Any]"
"""``rt.submit`` takes it for an array or a number, as it takes what the parameter says."""


class TypedTask(Protocol[Parameters]):
    """What a ``@task`` is to a submit: a function of these parameters that has retries."""

    @property
    def retries(self) -> int:
        """How often the task may run again."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Run the task here."""
        ...


class TypedKernel(Protocol[Parameters]):
    """What a ``@kernel`` is to a submit: a function of these parameters that has a core type."""

    @property
    def core_type(self) -> CoreType:
        """The type of the cores that run the kernel."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Run the kernel on the host."""
        ...


class HasDataPointer(Protocol):
    """A tensor of torch, or of a library with its interface."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        ...


class SubmitOptions(TypedDict, total=False):
    """The keyword arguments of :meth:`pto_core.Session.submit`."""

    worker: int | None
    hint: bool
    retries: int | None
    timeout_s: float | None
    after: Sequence[TaskHandle]
    config: CallConfig | None
