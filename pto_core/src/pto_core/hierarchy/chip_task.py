"""Convert the arguments of a chip's task to the types in the signature of its ChipCallable."""

from __future__ import annotations

import numbers
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pto_core._hierarchy import TaskArgs, TensorArgType
from pto_core.errors import UsageError
from pto_core.kernels import ChipCallable, DataType
from pto_core.kernels.direction import Direction

_MASK = 2**64 - 1
_FLOATS = (DataType.FLOAT32, DataType.FLOAT64)
_TAGS = {
    Direction.IN: TensorArgType.INPUT,
    Direction.OUT: TensorArgType.OUTPUT,
    Direction.INOUT: TensorArgType.INOUT,
    Direction.UNSPECIFIED: TensorArgType.INOUT,
}


@dataclass(frozen=True)
class ChipTask:
    """A ChipCallable that a session can submit in the same way as a :class:`pto_core.Task`."""

    chip: ChipCallable
    retries: int = 0

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs, tuple[Any, ...]]:
        """Return the arguments of a submit, and the arrays that the task writes.

        An array without a declared direction is read and written. A scalar is converted to its
        declared type. Raises UsageError for an array after a scalar, for a wrong number of
        arguments, and for a float that a Python orchestration would receive as an integer.
        """
        args, written, chip = TaskArgs(), [], self.chip
        declared = [one.dtype for one in chip.signature or () if one.direction is Direction.SCALAR]
        directions = _directions(chip, values)
        for index, (value, direction) in enumerate(zip(values, directions, strict=True)):
            if _is_number(value):
                is_declared = args.scalar_count < len(declared)
                dtype = declared[args.scalar_count] if is_declared else None
                args.add_scalar(_scalar(chip, index, value, dtype))
                continue
            if args.scalar_count:
                raise UsageError(
                    f"argument {index} of {chip.name} is an array after a scalar; "
                    "pass the arrays of a chip first",
                    name=chip.name,
                    value=index,
                )
            args.add_tensor(value, _TAGS[direction])
            if direction is not Direction.IN:
                written.append(value)
        return args, tuple(written)


def _directions(chip: ChipCallable, values: Sequence[Any]) -> list[Direction]:
    listed, is_by_tensor = chip.directions()
    arrays = sum(not _is_number(value) for value in values)
    count = arrays if is_by_tensor else len(values)
    if listed and len(listed) != count:
        raise UsageError(
            f"{chip.name} takes {len(listed)} {'arrays' if is_by_tensor else 'arguments'}, "
            f"got {count}",
            name=chip.name,
            value=count,
            expected=len(listed),
        )
    found = iter(listed)
    return [
        Direction.SCALAR
        if is_by_tensor and _is_number(value)
        else next(found, Direction.UNSPECIFIED)
        for value in values
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Number)


def _scalar(chip: ChipCallable, index: int, value: Any, dtype: DataType | None) -> Any:
    """Return the scalar to pass: a sign-extended integer, or a float of the declared type.

    A C++ orchestration receives a float without a declared type as float64. A Python orchestration
    receives scalars without a declared type as integers.
    """
    if dtype is not None and dtype in _FLOATS:
        return dtype.numpy.type(value)
    if isinstance(value, numbers.Integral):
        return int(value) & _MASK
    if chip.function is not None:
        raise UsageError(
            f"argument {index} of {chip.name} is {value!r}, which a Python orchestration would "
            "receive as an integer; declare its type in the signature of the ChipCallable, such as "
            "signature=('in', 'out', Scalar(float))",
            name=chip.name,
            value=value,
        )
    return int(struct.unpack("=Q", struct.pack("=d", float(value)))[0])
