"""Arguments of a chip's task, typed by the signature of its ChipCallable."""

from __future__ import annotations

import numbers
import struct
from collections.abc import Sequence
from typing import Any

from pto_core._hierarchy import TaskArgs, TensorArgType
from pto_core.errors import UsageError
from pto_core.kernels import ChipCallable
from pto_core.kernels.direction import Direction

_MASK = 2**64 - 1
_TAGS = {
    Direction.IN: TensorArgType.INPUT,
    Direction.OUT: TensorArgType.OUTPUT,
    Direction.INOUT: TensorArgType.INOUT,
    Direction.UNSPECIFIED: TensorArgType.INOUT,
}


def chip_arguments(chip: ChipCallable, values: Sequence[Any]) -> tuple[TaskArgs, tuple[Any, ...]]:
    """Give the arguments of one submit, and the arrays that it writes.

    An array without a direction is read and written. Raises UsageError: tensors come before
    scalars, and as many of them as the signature says.
    """
    args, written = TaskArgs(), []
    directions = _directions(chip, values)
    for index, (value, direction) in enumerate(zip(values, directions, strict=True)):
        if _is_number(value):
            args.add_scalar(_bits(value))
            continue
        if args.scalar_count:
            raise UsageError(
                f"argument {index} of {chip.name} is an array after a scalar; "
                "a chip's arrays come first",
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
            f"{count} were given",
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


def _bits(value: Any) -> int:
    """Sign-extend integers; floats are the bits of a float64, as in a run on a device."""
    if isinstance(value, numbers.Integral):
        return int(value) & _MASK
    return int(struct.unpack("=Q", struct.pack("=d", float(value)))[0])
