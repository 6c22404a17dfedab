"""The fit of benchmarks/scaling.py, and one short run of it."""

from __future__ import annotations

import pytest
from benchmarks.scaling import ELAPSED, QUANTITIES, Line, main, tables


def test_a_line_is_fitted_to_relative_errors() -> None:
    line = Line.fitted({1: 12.0, 2: 14.0, 32: 74.0})
    assert (line.fixed, line.each) == pytest.approx((10.0, 2.0))
    assert line.at(1000) == pytest.approx(2010.0)
    bent = Line.fitted({1: 10.0, 2: 10.0, 3: 1000.0, 4: 10.0})
    assert bent.at(1) < 50.0  # the large value has the least weight


def test_the_table_has_the_error_at_the_held_out_point() -> None:
    samples = {
        count: dict.fromkeys((one.name for one in (*QUANTITIES, *ELAPSED)), 3.0 * count + 1)
        for count in (1, 2, 4)
    }
    samples[2] = dict.fromkeys(samples[2], 5.0)  # the line through the other points predicts 7
    first = tables(samples, 2, 1000)[2].split(" | ")
    assert first[2:] == ["1.00", "3.00", "7.00", "5.00", "+40%", "3,001 |"]
    assert tables(samples, 2, 1000)[-1].endswith("| 4.00 | 5.00 | 13.00 |")


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "--fitted",
            "1",
            "2",
            "--held-out",
            "3",
            "--tasks",
            "10",
            "--idle",
            "0.5",
            "--repeats",
            "1",
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in lines}
    for quantity in QUANTITIES[:3]:
        assert float(rows[quantity.name][5].replace(",", "")) > 0, quantity.name
