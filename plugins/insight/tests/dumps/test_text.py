"""Statistics, differences and pictures of arrays."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pto_insight.dumps.text import ArrayDifference, difference, picture, statistics


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


def test_a_difference_has_the_statistics_of_both_arrays() -> None:
    first, second = np.array([0, 2, 4], np.int32), np.array([0, 2, 10], np.int32)
    array = ArrayDifference("0: x after", str(difference(first, second)), first, second)
    assert array.lines() == [
        "  0: x after: 1 of 3 elements; first at [2]: 4 -> 10; largest difference 6",
        "    first   min 0  max 4  mean 2",
        "    second  min 0  max 10  mean 4",
        "    |  @|",
    ]
    only = ArrayDifference("0: x after", "only in the first dump", first, None)
    assert only.lines() == ["  0: x after: only in the first dump", array.lines()[1]]
    resized = ArrayDifference("0: x after", "int32 3 -> int32 2", first, second[:2])
    assert resized.lines()[-1] == "    second  min 0  max 2  mean 1"


def test_pictures_of_a_difference_share_a_scale() -> None:
    def pictures(first: Any, second: Any) -> dict[str, list[Any]]:
        found = ArrayDifference("", "", np.array(first), np.array(second)).pictures(2, 3)
        return {side: cells.tolist() for side, cells in found.items()}

    nan = float("nan")
    assert pictures([0.0, 2.0], [4.0, 2.0]) == {
        "first": [[0, 0.5]],
        "second": [[1, 0.5]],
        "difference": [[1, 0]],
    }
    assert pictures(2.0, 4.0) == {"first": [[0]], "second": [[1]], "difference": [[1]]}
    large = pictures(np.zeros((8, 9)), np.eye(8, 9))
    assert large["second"] == large["difference"] == [[1, 1, 0], [0, 1, 1]]
    assert pictures([0.0, 1.0], [-0.0, 1.0])["difference"] == [[1, 0]]
    assert np.isnan(pictures([nan, nan], [nan, 1.0])["difference"]).tolist() == [[False, True]]
    assert list(pictures([0.0, 1.0], [[0.0, 1.0]])) == ["first", "second"]
