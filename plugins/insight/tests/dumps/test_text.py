"""Statistics, differences and pictures of arrays."""

from __future__ import annotations

import warnings

import numpy as np

from pto_insight.dumps.text import difference, picture, statistics


def test_statistics_count_what_is_not_finite() -> None:
    values = np.array([1, np.nan, 3, np.inf], np.float32)
    assert statistics(values) == "min 1  max 3  mean 2  nan 1  inf 1"
    assert statistics(np.array([True, False])) == "min 0  max 1  mean 0.5"
    assert statistics(np.array([np.nan])) == "no finite value  nan 1"
    assert statistics(np.zeros(0)) == "no elements"


def test_a_difference_names_the_first_element_that_has_other_bits() -> None:
    first = np.zeros((3, 4), np.float32)
    second = first.copy()
    assert difference(first, second) is None
    second[1, 2], second[2, 0] = 5, -7
    assert difference(first, second) == (
        "2 of 12 elements; first at [1, 2]: 0.0 -> 5.0; largest difference 7"
    )
    assert "1 of 1 elements" in str(difference(np.array([0.0]), np.array([-0.0])))
    nan = np.array([np.nan])
    assert difference(nan, nan.copy()) is None
    assert difference(first, first[:2]) == "float32 3 x 4 -> float32 2 x 4"
    assert difference(None, first) is None


def test_a_picture_shows_where_large_values_and_nan_are() -> None:
    values = np.zeros((24, 96))
    values[0, 0], values[23, 95], values[10, 10] = 1, 0.5, np.nan
    rows = picture(values)
    assert (len(rows), len(rows[0])) == (12, 48)
    assert (rows[0][0], rows[11][47], rows[5][5]) == ("@", "=", "?")
    assert "".join(rows).count(" ") == 12 * 48 - 3
    assert picture(np.ones((4, 4))) == []
    assert picture(np.array([1, 2])) == [" @"]


def test_values_of_any_size_are_shown_without_warnings() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.7e308, -1.7e308])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(picture(values)) == 1
        assert statistics(values) == "min -1.7e+308  max 1.7e+308  mean 0  nan 1  inf 2"
        assert str(difference(values, values[::-1])).startswith(
            "4 of 5 elements; first at [0]: nan -> "
        )
