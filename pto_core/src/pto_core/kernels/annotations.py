"""Annotations of the parameters of kernels, tasks and orchestrations.

At run time, ``In``, ``Out`` and the others are the classes of :mod:`pto_core.kernels.direction`.
For a type checker, each is the type that the parameter has inside the function: a NumPy array, or a
number for ``Scalar``. ``f32``, ``f64``, ``i32`` and ``i64`` are numbers of a declared type. In an
orchestration, the parameter is a device array, which has shape, dtype and views like a NumPy array.

A type checker therefore rejects a call such as ``In("float32", (64,))``. Typed programs write
``Direction.IN("float32", (64,))``, which creates the same object.
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
    f32: TypeAlias = float
    f64: TypeAlias = float
    i32: TypeAlias = int
    i64: TypeAlias = int
else:
    from pto_core.kernels.direction import (
        In,
        InOut,
        NoDep,
        Out,
        OutExisting,
        Scalar,
        f32,
        f64,
        i32,
        i64,
    )

__all__ = ["In", "InOut", "NoDep", "Out", "OutExisting", "Scalar", "f32", "f64", "i32", "i64"]
