"""Convert the arguments of a chip's task to the types in the signature of its ChipCallable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pto_core._hierarchy import TaskArgs, TensorArgType
from pto_core._native import declared_number, number
from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.kernels import ChipCallable
from pto_core.kernels.direction import Direction

TAGS = {Direction(tag.value): tag for tag in TensorArgType}


@dataclass(frozen=True)
class ChipTask:
    """A ChipCallable that a session can submit in the same way as a :class:`pto_core.Task`."""

    chip: ChipCallable
    retries: int = 0

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs, tuple[Any, ...]]:
        """Return the arguments of a submit, and the arrays that the task writes.

        An array without a declared direction is read and written. A scalar is converted to its
        declared type. Raises UsageError for an array after a scalar, for a wrong number of
        arguments, for a number where an array is declared and the converse, and for a number that a
        Python orchestration would receive as another one, because no type is declared.
        """
        args, written, chip = TaskArgs(), [], self.chip
        for index, (value, direction, code) in enumerate(_declared(chip, values)):
            where = f"argument {index} of {chip.name}"
            is_unclear = direction is Direction.UNSPECIFIED
            if direction is Direction.SCALAR or (is_unclear and number(value) is not None):
                args.add_scalar(_scalar(chip, where, value, code))
                continue
            if args.scalar_count:
                raise UsageError(
                    f"{where} is an array after a scalar; pass the arrays of a chip first",
                    name=chip.name,
                    value=index,
                )
            add_array(args, value, TAGS.get(direction, TensorArgType.INOUT), where)
            if direction is not Direction.IN:
                written.append(value)
        return args, tuple(written)


def add_array(args: TaskArgs, value: Any, tag: TensorArgType, where: str) -> None:
    """Add an array. Raises UsageError, which names the argument, for any other object."""
    try:
        args.add_tensor(value, tag)
    except UsageError as error:
        raise UsageError(f"{where}: {error}", name=where, value=type(value).__name__) from None


def _declared(chip: ChipCallable, values: Sequence[Any]) -> list[tuple[Any, Direction, int]]:
    """Return each value with its declared direction, and with the DataType of a scalar, or -1."""
    listed, is_by_tensor = chip.directions()
    is_scalar = [is_by_tensor and number(value) is not None for value in values]
    count = len(values) - sum(is_scalar)
    if listed and len(listed) != count:
        raise UsageError(
            f"{chip.name} takes {len(listed)} {'arrays' if is_by_tensor else 'arguments'}, "
            f"got {count}",
            name=chip.name,
            value=count,
            expected=len(listed),
        )
    found = iter(zip(listed, chip.type_codes(), strict=True))
    return [
        (value, *((Direction.SCALAR, -1) if scalar else next(found, (Direction.UNSPECIFIED, -1))))
        for value, scalar in zip(values, is_scalar, strict=True)
    ]


def _scalar(chip: ChipCallable, where: str, value: Any, code: int) -> int:
    """Return the 64 bits of a scalar.

    A C++ orchestration receives a number without a declared type in the number's own type. A Python
    orchestration receives scalars without a declared type as signed integers.
    """
    bits, converted = declared_number(value, code, where)
    is_signed = isinstance(converted, int) and converted < 2**63
    if code < 0 and chip.function is not None and not is_signed:
        raise UsageError(
            f"{where} is {shown(value)}, which a Python orchestration would receive as another "
            "integer; declare its type in the signature of the ChipCallable, such as "
            "signature=('in', 'out', Scalar(float))",
            name=chip.name,
            value=value,
        )
    return bits
