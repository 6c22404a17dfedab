"""Codes of data types, equal in Python, C++, files and frames (``pto/abi/dtype.h``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import IntEnum
from typing import Any, cast

import numpy as np

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.values import listed, shown

_SHAPE = "pass integers that are not negative"


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return the extents of a shape, which is an integer or a sequence. Raises UsageError."""
    is_sequence = isinstance(shape, Iterable) and not isinstance(shape, Mapping | Set)
    given = listed("the shape", shape if is_sequence else (shape,), _SHAPE)
    extents = tuple(integer(extent, 0, 2**63 - 1) for extent in given)
    if None in extents:
        raise wrong_shape(shape, _SHAPE)
    return cast(tuple[int, ...], extents)


def wrong_shape(shape: object, advice: str) -> UsageError:
    """Return the error for a shape that no array can have."""
    return UsageError(f"the shape {shown(shape)} is not valid; {advice}", name="shape", value=shape)


ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""The data types that NumPy has only by the package ``ml_dtypes``."""


class DataType(IntEnum):
    """The type of an element. The first nine codes are those of the published interface."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    BFLOAT16 = 6
    INT64 = 7
    UINT64 = 8
    FLOAT64 = 9
    BOOL = 10
    UINT16 = 11
    UINT32 = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    FLOAT8_E4M3FN = 15
    FLOAT8_E5M2 = 16

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy data type. bfloat16 and float8 are types of the package ``ml_dtypes``."""
        name = self.name.lower()
        if name in ML_DTYPES:
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return found
        return np.dtype(name)

    @property
    def nbytes(self) -> int:
        """The number of bytes of one element."""
        return int(self.numpy.itemsize)

    @classmethod
    def of(cls, dtype: Any) -> DataType:
        """Return the data type for any type that NumPy accepts. Raises UsageError."""
        if isinstance(dtype, DataType):
            return dtype
        is_text = isinstance(dtype, str)
        name = str(dtype) if is_text and dtype in ML_DTYPES else _native_name(dtype)
        if name is None or name.upper() not in cls.__members__:
            hint = "its byte order is not that of this machine; " if _is_swapped(dtype) else ""
            if isinstance(dtype, int):
                hint = "a shape with several dimensions is a tuple, such as (3, 4); as a type, "
            raise UsageError(
                f"{shown(dtype)} is not a data type of a device; {hint}"
                f"use one of {', '.join(member.name.lower() for member in cls)}",
                name="dtype",
                value=dtype,
            )
        return cls[name.upper()]


def _is_swapped(dtype: Any) -> bool:
    try:
        return not np.dtype(dtype).isnative
    except Exception:  # noqa: BLE001 - as in _native_name
        return False


def _native_name(dtype: Any) -> str | None:
    try:
        found = np.dtype(dtype)
    except Exception:  # noqa: BLE001 - NumPy calls the repr of the value, which can raise anything
        return None
    return found.name if found.isnative else None
