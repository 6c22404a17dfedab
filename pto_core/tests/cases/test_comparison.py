"""The comparison of arrays agrees with a plain loop, and a mismatch is reported completely."""

from __future__ import annotations

import math
import secrets

import ml_dtypes
import numpy as np
import pytest

from pto_core.cases.golden import compare, mismatch_error
from pto_core.errors import UsageError, WrongResultError


def is_right(actual: float, expected: float, rtol: float, atol: float) -> bool:
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    if math.isinf(expected) or math.isinf(actual):
        return actual == expected
    return abs(actual - expected) <= atol + rtol * abs(expected)


def error_of(actual: float, expected: float) -> float:
    if actual == expected or (math.isnan(actual) and math.isnan(expected)):
        return 0.0
    error = abs(actual - expected)
    return math.inf if math.isnan(error) else error


def test_random_arrays_against_a_loop() -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    random = np.random.default_rng(seed)
    special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-300, 3.0]
    for _ in range(200):
        shape = tuple(random.integers(1, 5, random.integers(0, 4)))
        actual = np.array(random.choice(special, shape))
        expected = np.where(random.random(shape) < 0.7, actual, random.choice(special, shape))
        rtol, atol = random.choice([0.0, 1e-5, 0.5]), random.choice([0.0, 1e-5, 2.0])
        report = compare("t", actual, expected, rtol, atol)
        wrong = [
            index
            for index in np.ndindex(shape)
            if not is_right(actual[index], expected[index], rtol, atol)
        ]
        assert report.mismatches == len(wrong)
        assert report.first_index == (wrong[0] if wrong else None)
        errors = [error_of(actual[index], expected[index]) for index in np.ndindex(shape)]
        assert report.max_error == max(errors)
        assert report.max_error_index == list(np.ndindex(shape))[errors.index(max(errors))]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_first_and_the_largest_error_are_found_in_a_large_array(dtype: str) -> None:
    """The array is compared in pieces; each reported index refers to the whole array."""
    expected = np.zeros((700, 1000), dtype)
    actual = expected.copy()
    for place, value in (((1, 2), 3), ((300, 4), 9), ((600, 5), 9), ((699, 999), 8)):
        actual[place] = value
    report = compare("t", actual, expected, 0.0, 0.0)
    assert (report.mismatches, report.first_index) == (4, (1, 2))
    assert (report.max_error, report.max_error_index) == (9.0, (300, 4))


def test_message_has_everything() -> None:
    actual = np.zeros((3, 4), np.float32)
    expected = actual.copy()
    expected[1, 2], expected[2, 3] = 1.5, -4.0
    error = mismatch_error(compare("out_f", actual, expected, 1e-3, 1e-2))
    assert isinstance(error, WrongResultError)
    assert (error.tensor, error.index, error.mismatches, error.total) == ("out_f", (1, 2), 2, 12)
    for part in (
        "'out_f'",
        "2 of 12",
        "[1, 2]",
        "got 0.0",
        "expected 1.5",
        "[2, 3]",
        "0.001",
        "0.01",
    ):
        assert part in error.message
    assert "largest error 4" in error.message


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.bool_])
def test_integers_are_exact(dtype) -> None:
    top = 1 if dtype is np.bool_ else np.iinfo(dtype).max
    actual, expected = np.array([top, 0], dtype), np.array([top, 0], dtype)
    assert compare("t", actual, expected, 1.0, 1e9).mismatches == 0
    expected[0] = top - 1
    report = compare("t", actual, expected, 1.0, 1e9)
    assert (report.mismatches, report.max_error, report.rtol) == (1, 1.0, 0.0)
    assert "tolerance exact" in mismatch_error(report).message


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integers_with_a_stated_tolerance(dtype) -> None:
    top = np.iinfo(dtype).max
    actual = np.array([top, top - 1, top - 3], dtype)
    expected = np.array([top, top, top], dtype)
    report = compare("t", actual, expected, 0.0, 1.0, exact_integers=False)
    assert (report.mismatches, report.first_index, report.atol) == (1, (2,), 1.0)
    assert report.max_error == 3.0
    assert compare("t", actual, expected, 0.5, 0.0, exact_integers=False).mismatches == 0


def test_booleans_are_exact_whatever_is_stated() -> None:
    actual, expected = np.array([True, False]), np.array([True, True])
    assert compare("t", actual, expected, 1.0, 1.0, exact_integers=False).mismatches == 1


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype) -> None:
    actual = np.array([1 + 2j, 3 + 4j, complex(np.nan, 0)], dtype)
    assert compare("t", actual, actual, 0, 0).mismatches == 0
    expected = actual + np.array([0, 0.5j, 0], dtype)
    report = compare("t", actual, expected, 1e-3, 0)
    assert (report.mismatches, report.first_index, report.max_error) == (1, (1,), 0.5)
    assert (report.first_actual, report.first_expected) == (3 + 4j, 3 + 4.5j)
    assert "got (3+4j), expected (3+4.5j)" in mismatch_error(report).message


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(dtype) -> None:
    actual = np.array([1.0, 2.0], dtype)
    assert compare("t", actual, actual.astype(np.float32), 0, 0).mismatches == 0
    other = actual + np.array([0, 0.25], dtype)
    report = compare("t", actual, other, 1e-2, 0)
    assert (report.mismatches, report.first_index, report.max_error) == (1, (1,), 0.25)
    assert isinstance(report.first_actual, float)


def test_shapes_must_agree() -> None:
    with pytest.raises(UsageError, match=r"'t' has shape \(2,\), but its reference \(2, 1\)"):
        compare("t", np.zeros(2), np.zeros((2, 1)), 0, 0)


def test_empty_and_zero_dimensional() -> None:
    assert compare("t", np.zeros((0, 3)), np.zeros((0, 3)), 0, 0).mismatches == 0
    report = compare("t", np.array(1.0), np.array(2.0), 0, 0)
    assert (report.mismatches, report.first_index) == (1, ())
