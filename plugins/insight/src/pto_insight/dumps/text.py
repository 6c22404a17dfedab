"""Dumps as text: statistics, differences, and small pictures of arrays."""

from __future__ import annotations

import struct
from collections.abc import Iterator
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


def compared(one: TaskDump, other: TaskDump, dtype: str | None) -> Iterator[str]:
    """Yield a paragraph for each difference between two dumps of a task: state, arrays, scalars."""
    if one.state != other.state:
        yield f"  {one.state} -> {other.state}"
    mine, theirs = ({each.argument: each for each in dump.arguments} for dump in (one, other))
    for at in sorted(mine.keys() | theirs.keys()):
        for phase in _PHASES:
            first = typed(one, mine[at], phase, dtype) if at in mine else None
            second = typed(other, theirs[at], phase, dtype) if at in theirs else None
            change = difference(first, second)
            if (first is None) != (second is None):
                change = f"only in the {'first' if second is None else 'second'} dump"
            if change is None:
                continue
            lines = [f"  {at}: {(mine.get(at) or theirs[at]).name or 'memory'} {phase}: {change}"]
            if first is not None and second is not None and first.shape == second.shape:
                lines += [f"    |{row}|" for row in picture(_differs(first, second))]
            yield "\n".join(lines)
    for at in sorted(one.scalars.keys() & other.scalars.keys()):
        values = one.scalars[at], other.scalars[at]
        if values[0] != values[1] and not _is_address(one, values[0]):
            yield f"  {at}: scalar {_scalar(values[0])} -> {_scalar(values[1])}"


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
