"""Dumps as text: statistics, differences, and small pictures of arrays."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.errors import UsageError
from pto_insight.dumps.task_dump import DumpedArgument, TaskDump

_ROWS, _COLUMNS = 12, 48
_SHADES = " .:-=+*#%@"
_PHASES = ("before", "after")

Values = NDArray[Any]


def checked_dtype(name: str | None) -> str | None:
    """Return the name of the type that ``--dtype`` states, if any. Raises UsageError."""
    if name is None:
        return None
    try:
        found = np.dtype(name)
        if found.kind in "mM" or np.isnan(np.zeros((), found)).shape:
            raise ValueError("dates, and arrays of fixed size, are no numbers")
        return found.name
    except (TypeError, ValueError):
        raise UsageError(
            f"--dtype is {name!r}; use a type of NumPy such as float32", name="dtype", value=name
        ) from None


def described(dump: TaskDump, dtype: str | None, *, with_pictures: bool = True) -> str:
    """Return the description of a task. ``dtype``: the type of arrays that are known as bytes."""
    lines = [
        f"{dump.label}  {dump.where}".rstrip(),
        f"  run {dump.run} of device {dump.device}, {dump.backend}, {dump.runtime}; "
        f"on {dump.core}; {dump.state}",
    ]
    if dump.library:
        source = f", from {dump.request.source}" if dump.request else ""
        lines.append(f"  library {dump.library}{source}")
    for one in dump.arguments:
        names = " ".join(filter(None, (one.name, f"[{one.tag}]" if one.tag else "")))
        kept = shown_values(dump, one, dtype)
        kind = one.dtype if kept is None else kept.dtype.name
        shape = one.shape if kept is None else kept.shape
        lines.append(f"  {one.argument}: {names or 'memory'}  {kind} {_shape(shape)}")
        shown = [typed(dump, one, phase, dtype) for phase in _PHASES]
        for phase, values in zip(_PHASES, shown, strict=True):
            if values is not None:
                lines.append(f"    {phase:<6}  {statistics(values)}")
        if (change := difference(*shown)) is not None:
            lines.append(f"    changed {change}")
        if with_pictures and kept is not None:
            lines += [f"    |{row}|" for row in picture(kept)]
    lines += [f"  {at}: scalar {_scalar(value)}" for at, value in sorted(dump.scalars.items())]
    return "\n".join(lines)


def shown_values(dump: TaskDump, one: DumpedArgument, dtype: str | None) -> Values | None:
    """Return an array after the call, otherwise before it; None if neither is kept."""
    after = typed(dump, one, "after", dtype)
    return typed(dump, one, "before", dtype) if after is None else after


def table(dumps: list[TaskDump]) -> str:
    """Return one line for each task."""
    rows = []
    for dump in dumps:
        arrays = [dump.values("after", at) for at in dump.after]
        numbers = [_numbers(values) for values in arrays if values is not None and values.size]
        nan = sum(int(np.isnan(each).sum()) for each in numbers)
        largest = max((_largest(each) for each in numbers), default=0.0)
        rows.append((dump.label, dump.state, f"{largest:.6g}", str(nan), dump.where))
    heads = ("task", "state", "largest", "nan", "line")
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    )


@dataclass(frozen=True)
class ArrayDifference:
    """An array that differs in two dumps of a task. ``first``, ``second``: None if not kept."""

    name: str
    change: str
    first: Values | None
    second: Values | None

    @property
    def pair(self) -> tuple[Values, Values] | None:
        """Both arrays, if they can be compared element by element."""
        first, second = self.first, self.second
        if first is None or second is None:
            return None
        has_same_kind = (first.shape, first.dtype) == (second.shape, second.dtype)
        return (first, second) if has_same_kind else None

    def lines(self, *, with_picture: bool = True) -> list[str]:
        """Return the change, the statistics of both arrays, and a picture of the change."""
        lines = [f"  {self.name}: {self.change}"]
        for side, values in (("first", self.first), ("second", self.second)):
            if values is not None:
                lines.append(f"    {side:<6}  {statistics(values)}")
        if with_picture and self.pair is not None:
            lines += [f"    |{row}|" for row in picture(_differs(*self.pair))]
        return lines

    @np.errstate(all="ignore")
    def pictures(self, rows: int, columns: int) -> dict[str, Values]:
        """Return the cells of the pictures of both arrays and of their absolute difference.

        If the arrays can be compared, they share a scale, and that of the difference begins at 0.
        """
        if self.pair is None:
            sides = {"first": self.first, "second": self.second}
            return {
                side: shades(values, rows, columns)
                for side, values in sides.items()
                if values is not None
            }
        differs = _differs(*self.pair).astype(np.float64)
        one, other = map(_numbers, self.pair)
        distance = np.where(differs, np.abs(one - other), 0)
        distance = distance if distance.any() else differs  # such as 0 and -0
        pairs = (one, other), (np.zeros_like(distance), distance)
        cells = [_shades_of_pair(*pair, rows, columns) for pair in pairs]
        return dict(zip(("first", "second", "difference"), (*cells[0], cells[1][1]), strict=True))


@dataclass(frozen=True)
class Comparison:
    """The differences between two dumps of a task.

    ``notes``: lines about state and scalars. ``common``: the number of array arguments in both
    dumps; ``equal`` of them do not differ.
    """

    notes: list[str]
    arrays: list[ArrayDifference]
    common: int
    equal: int

    def __bool__(self) -> bool:
        return bool(self.notes or self.arrays)

    def summary(self, dump: TaskDump) -> list[str]:
        """Return the lines about the task as a whole."""
        equal = f"  {self.equal} of {self.common} arrays are equal"
        return [f"{dump.label}  {dump.where}".rstrip(), *self.notes, *[equal] * bool(self.equal)]


def compared(one: TaskDump, other: TaskDump, dtype: str | None) -> Comparison:
    """Return the differences between two dumps of a task, bit by bit: state, arrays, scalars."""
    notes = [f"  {one.state} -> {other.state}"] if one.state != other.state else []
    for at in sorted(one.scalars.keys() & other.scalars.keys()):
        values = one.scalars[at], other.scalars[at]
        if values[0] != values[1] and not _is_address(one, values[0]):
            notes.append(f"  {at}: scalar {_scalar(values[0])} -> {_scalar(values[1])}")
    mine, theirs = ({each.argument: each for each in dump.arguments} for dump in (one, other))
    arrays, different, common = [], set(), set()
    for at, phase in product(sorted(mine.keys() | theirs.keys()), _PHASES):
        first = typed(one, mine[at], phase, dtype) if at in mine else None
        second = typed(other, theirs[at], phase, dtype) if at in theirs else None
        if first is not None and second is not None:
            common.add(at)
        change = difference(first, second)
        if (first is None) != (second is None):
            change = f"only in the {'first' if second is None else 'second'} dump"
        if change is not None:
            different.add(at)
            name = f"{at}: {(mine.get(at) or theirs[at]).name or 'memory'} {phase}"
            arrays.append(ArrayDifference(name, change, first, second))
    return Comparison(notes, arrays, len(common), len(common - different))


@np.errstate(all="ignore")
def statistics(values: Values) -> str:
    """Return the smallest, largest and mean value, and the number of values that are not finite."""
    if not values.size:
        return "no elements"
    numbers = _numbers(values)
    finite = numbers[np.isfinite(numbers)]
    nan, infinite = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    text = "no finite value"
    if finite.size:
        text = f"min {finite.min():.6g}  max {finite.max():.6g}  mean {finite.mean():.6g}"
    return text + f"  nan {nan}" * bool(nan) + f"  inf {infinite}" * bool(infinite)


@np.errstate(all="ignore")
def difference(first: Values | None, second: Values | None) -> str | None:
    """Return how two arrays differ, bit by bit; None if they do not, or if one is missing."""
    if first is None or second is None:
        return None
    if first.shape != second.shape or first.dtype != second.dtype:
        shapes = [f"{one.dtype.name} {_shape(one.shape)}" for one in (first, second)]
        return f"{shapes[0]} -> {shapes[1]}"
    differs = _differs(first, second)
    count = int(differs.sum())
    if not count:
        return None
    at = np.unravel_index(int(np.argmax(differs)), differs.shape) if differs.ndim else ()
    distance = np.abs(_numbers(first) - _numbers(second))[differs]
    finite = distance[np.isfinite(distance)]
    largest = f"; largest difference {finite.max():.6g}" if finite.size else ""
    place = ", ".join(str(int(index)) for index in at)
    return (
        f"{count:,} of {differs.size:,} elements; first at [{place}]: {first[at]!s} -> "
        f"{second[at]!s}{largest}"
    )


def picture(values: Values) -> list[str]:
    """Return a small picture of an array; it is empty if all elements are equal.

    From `` `` for the smallest to ``@`` for the largest value; ``?`` is NaN or infinity.
    """
    return [
        "".join("?" if np.isnan(cell) else _SHADES[int(cell * (len(_SHADES) - 1))] for cell in row)
        for row in shades(values, _ROWS, _COLUMNS)
    ]


@np.errstate(all="ignore")
def shades(values: Values, rows: int, columns: int) -> Values:
    """Return the cells of a picture of an array; no cells if all elements are equal.

    From 0 for the smallest to 1 for the largest value, NaN for NaN and infinity. A cell has the
    largest of its elements. All dimensions but the last one are rows.
    """
    if values.ndim == 0 or values.size < 2 or (values == values.flat[0]).all():
        return np.zeros((0, 0))
    cells = _numbers(values).reshape(-1, values.shape[-1])
    for axis, most in enumerate((rows, columns)):
        count = min(most, cells.shape[axis])
        begins = np.arange(count) * cells.shape[axis] // count
        cells = np.maximum.reduceat(cells, begins, axis=axis)
    cells[~np.isfinite(cells)] = np.nan
    finite = cells[np.isfinite(cells)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    scaled: Values = (cells - low) / (high - low)
    return scaled if high > low else np.where(cells > 0, 1.0, cells * 0.0)


def _shades_of_pair(
    first: Values, second: Values, rows: int, columns: int
) -> tuple[Values, Values]:
    """Return the cells of the pictures of two arrays of one shape, on the same scale."""
    cells = shades(np.stack(np.atleast_1d(first, second)), 2 * rows, columns)
    return cells[: len(cells) // 2], cells[len(cells) // 2 :]


def typed(dump: TaskDump, one: DumpedArgument, phase: str, dtype: str | None) -> Values | None:
    """Return an array of a dump; one that is known as bytes only has the type ``dtype``.

    It remains bytes if their number is no multiple of the size of an element.
    """
    values = dump.values(phase, one.argument)
    if values is None or dtype is None or not is_untyped(one):
        return values
    if values.nbytes % np.dtype(dtype).itemsize:
        return values
    typed: Values = values.view(dtype)
    return typed


def is_untyped(one: DumpedArgument) -> bool:
    """Return whether an array is known as bytes only."""
    return not one.tag and one.dtype == "uint8"


def _differs(first: Values, second: Values) -> Values:
    """Return which elements have other bits."""
    bits = [
        np.ascontiguousarray(one).view(np.uint8).reshape(*one.shape, one.itemsize)
        for one in (np.atleast_1d(first), np.atleast_1d(second))
    ]
    found: Values = (bits[0] != bits[1]).any(axis=-1).reshape(first.shape)
    return found


def _numbers(values: Values) -> Values:
    """Return the values as floating-point numbers; those of complex numbers are absolute."""
    if values.dtype.kind == "c":
        values = np.abs(values)
    numbers: Values = values.astype(np.float64)
    return numbers


def _largest(numbers: Values) -> float:
    finite = np.abs(numbers[np.isfinite(numbers)])
    return float(finite.max()) if finite.size else 0.0


def _is_address(dump: TaskDump, value: int) -> bool:
    return any(one.buffer <= value < one.buffer + one.buffer_bytes for one in dump.arguments)


def _scalar(value: int) -> str:
    (as_double,) = struct.unpack("<d", value.to_bytes(8, "little"))
    (as_float,) = struct.unpack("<f", (value & 0xFFFFFFFF).to_bytes(4, "little"))
    texts = [str(value)]
    for name, number in (("float32", as_float), ("float64", as_double)):
        if 1e-6 < abs(number) < 1e9:
            texts.append(f"{name} {number:.6g}")
    return " or ".join(texts)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
