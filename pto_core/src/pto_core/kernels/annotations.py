"""The annotations of kernels, tasks and orchestrations, as the program and type checkers see them.

In a program ``In``, ``Out`` and the others are the classes of :mod:`pto_core.kernels.direction`. A
type checker sees what the body of the function works with: a NumPy array, or a number for
``Scalar``. A device array in an orchestration has the array's shape, dtype and views.

A type checker therefore refuses a call such as ``In("float32", (64,))``. Typed programs write
``Direction.IN("float32", (64,))``, which makes the same object.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    In: TypeAlias = NDArray[Any]
    Out: TypeAlias = NDArray[Any]
    InOut: TypeAlias = NDArray[Any]
    OutExisting: TypeAlias = NDArray[Any]
    NoDep: TypeAlias = NDArray[Any]
    Scalar: TypeAlias = float
else:
    from pto_core.kernels.direction import In, InOut, NoDep, Out, OutExisting, Scalar

__all__ = ["In", "InOut", "NoDep", "Out", "OutExisting", "Scalar"]
