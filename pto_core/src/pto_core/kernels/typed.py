"""Types that let type checkers check the arguments of submits.

A submit has options in addition to the arguments of its function, and a ParamSpec cannot express
that. Therefore the type of a submit has one overload for each number of arguments from 0 to 6, and
one for a submit with keyword arguments and without options. The arguments of a function with more
parameters are not checked. Options together with keyword arguments need ``Session.options``. An
argument must have the type of its parameter, or be a handle, or a tensor of a type other than NumPy
array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from typing_extensions import ParamSpec, TypeVar

    from pto_core._native import DeviceArray
    from pto_core._worker import ContinuousTensor, TaskHandle
    from pto_core.kernels.call_config import CallConfig
    from pto_core.kernels.direction import CoreType, Parameter
    from pto_core.kernels.retries import Retries

    Parameters = ParamSpec("Parameters", default=...)
    Value = TypeVar("Value", covariant=True, default=Any)
    Outcome = TypeVar("Outcome", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Value = TypeVar("Value", covariant=True)
    Outcome = TypeVar("Outcome", covariant=True)

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")

Tensor: TypeAlias = "ContinuousTensor | HasElements | HasDataPointer | TaskHandle"
"""What a session's submit accepts instead of an argument: a tensor, or the handle of a task."""

Argument: TypeAlias = "DeviceArray | Parameter | ctypes._SimpleCData[Any]"
"""An argument for ``rt.submit``: an array or a number, depending on the parameter."""


class TypedTask(Protocol[Parameters, Outcome]):
    """The type of a ``@task`` for a submit: a function with these parameters, and ``retries``."""

    @property
    def retries(self) -> int:
        """The number of times that the task may run again."""
        ...

    @property
    def outcome(self) -> type[Outcome]:
        """Only for type checkers: the type of ``handle.result()``."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> object:
        """Call the function in this process."""
        ...


class TypedKernel(Protocol[Parameters]):
    """The type of a ``@kernel`` for a submit: a function with these parameters, and a core type."""

    @property
    def core_type(self) -> CoreType:
        """The type of the cores that run the kernel."""
        ...

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Call the kernel's function on the host."""
        ...


class HasDataPointer(Protocol):
    """A tensor of torch, or of another library with these methods."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        ...


class HasElements(Protocol):
    """A part of a tensor, such as ``s.empty((8, 8))[:, 2:4]``."""

    def numpy(self) -> Any:
        """Return a NumPy array over the memory."""
        ...


class SubmitOptions(TypedDict, total=False):
    """The options of ``submit`` of a Worker or a Session."""

    worker: int | None
    hint: bool
    retries: int | Retries | None
    timeout_s: float | None
    after: Sequence[TaskHandle]
    config: CallConfig | None
