"""Types for the submits of functions, so that type checkers check the arguments.

A submit has options beside the arguments of its function, which a ParamSpec cannot express. So its
type has an overload for each number of arguments from none to six; with more, the arguments are not
checked. An argument has the type of its parameter, or is a tensor type other than a NumPy array.
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
    from pto_core.kernels.core_type import CoreType
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
"""An array for the submit of a session, which also accepts NumPy arrays."""

Argument: TypeAlias = "DeviceArray | Parameter | ctypes._SimpleCData[Any]"
"""An array or a number for ``rt.submit``, as the parameter requires."""


class TypedTask(Protocol[Parameters]):
    """A ``@task`` in a submit: a function with these parameters, and with ``retries``."""

    @property
    def retries(self) -> int:
        """The number of times that the task may run again."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Run the task in this process."""
        ...


class TypedKernel(Protocol[Parameters]):
    """A ``@kernel`` in a submit: a function with these parameters, and with a core type."""

    @property
    def core_type(self) -> CoreType:
        """The type of the cores that run the kernel."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Run the kernel on the host."""
        ...


class HasDataPointer(Protocol):
    """A tensor of torch, or of a library with the same interface."""

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
