"""Compare an output with its reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_core.cases.report import OutputReport
from pto_core.errors import UsageError, WrongResultError

_CHUNK = 1 << 18


def compare(
    name: str,
    actual: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    rtol: float,
    atol: float,
    *,
    exact_integers: bool = True,
) -> OutputReport:
    """Compare an output with its reference, element by element.

    Booleans must be equal, and with ``exact_integers`` integers must be equal too. Other elements
    may differ by at most ``atol + rtol * abs(expected)``. An infinity equals itself, and NaN is
    correct where the reference has NaN. Raises UsageError if the reference has another shape.
    """
    if actual.shape != expected.shape:
        raise UsageError(
            f"output {name!r} has shape {actual.shape}, but its reference {expected.shape}; "
            "compute_golden must fill the tensor that it receives in place",
            name=name,
            value=str(expected.shape),
            expected=str(actual.shape),
        )
    exact_kinds = "biu" if exact_integers else "b"
    exact = actual.dtype.kind in exact_kinds and expected.dtype.kind in exact_kinds
    rtol, atol = (0.0, 0.0) if exact else (rtol, atol)
    tally = _Tally()
    left, right = actual.reshape(-1), expected.reshape(-1)
    for start in range(0, left.size, _CHUNK):
        piece = slice(start, start + _CHUNK)
        if exact:
            tally.add(*_exact(left[piece], right[piece]), start)
        else:
            tally.add(*_close(left[piece], right[piece], rtol, atol), start)
    first = tally.first
    return OutputReport(
        name=name,
        shape=tuple(actual.shape),
        dtype=actual.dtype.name,
        total=actual.size,
        mismatches=tally.mismatches,
        max_error=tally.max_error,
        max_error_index=_index(tally.worst, actual.shape),
        first_index=_index(first, actual.shape),
        first_actual=None if first is None else left[first].item(),
        first_expected=None if first is None else right[first].item(),
        rtol=rtol,
        atol=atol,
    )


def mismatch_error(output: OutputReport) -> WrongResultError:
    """Return an error that describes the differences of an output from its reference."""
    tolerance = (
        f"rtol {output.rtol:g}, atol {output.atol:g}" if output.rtol or output.atol else "exact"
    )
    return WrongResultError(
        f"output {output.name!r} is wrong in {output.mismatches} of {output.total} elements; first "
        f"at {_shown(output.first_index)}: got {output.first_actual!r}, expected "
        f"{output.first_expected!r}; largest error {output.max_error:g} at "
        f"{_shown(output.max_error_index)}; tolerance {tolerance}",
        tensor=output.name,
        index=output.first_index,
        actual=output.first_actual,
        expected=output.first_expected,
        mismatches=output.mismatches,
        total=output.total,
        rtol=output.rtol,
        atol=output.atol,
    )


@dataclass
class _Tally:
    mismatches: int = 0
    first: int | None = None
    worst: int | None = None
    max_error: float = 0.0

    def add(self, wrong: np.ndarray[Any, Any], error: np.ndarray[Any, Any], start: int) -> None:
        count = int(np.count_nonzero(wrong))
        if count and self.first is None:
            self.first = start + int(np.argmax(wrong))
        self.mismatches += count
        place = int(np.argmax(error))
        if self.worst is None or error[place] > self.max_error:
            self.worst, self.max_error = start + place, float(error[place])


def _exact(actual: Any, expected: Any) -> tuple[Any, Any]:
    wrong = actual != expected
    error = np.zeros(actual.shape, np.float64)
    if wrong.any():
        error = np.abs(actual.astype(np.longdouble) - expected.astype(np.longdouble))
    return wrong, error


def _close(actual: Any, expected: Any, rtol: float, atol: float) -> tuple[Any, Any]:
    wide = _wide(actual, expected)
    left, right = actual.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(left - right)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
        # For an infinite reference, the formula would allow every difference. Allow none.
        allowed = np.where(np.isinf(right), 0.0, atol + rtol * np.abs(right))
        return ~same & ~(error <= allowed), error


def _wide(actual: Any, expected: Any) -> Any:
    """Return a type that can represent every value of both types."""
    kinds = actual.dtype.kind + expected.dtype.kind
    if "c" in kinds:
        return np.complex128
    return np.longdouble if set(kinds) <= set("iu") else np.float64


def _index(flat: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if flat is None else tuple(int(i) for i in np.unravel_index(flat, shape))


def _shown(index: tuple[int, ...] | None) -> str:
    return "[" + ", ".join(map(str, index or ())) + "]"
