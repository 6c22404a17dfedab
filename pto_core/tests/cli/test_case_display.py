"""The facts of a case as rows of label and text."""

from __future__ import annotations

import pytest

from pto_core.cases.report import CaseReport, RunTimes
from pto_core.cli.case_display import rows


@pytest.mark.parametrize("runs", [1, 2])
def test_only_several_runs_have_a_fastest(runs: int) -> None:
    times = RunTimes(build=0.1, run=0.2, copy=0.3)
    report = CaseReport(
        case="default",
        folder=".",
        backend="sim",
        runtime="host_build_graph",
        device=0,
        passed=True,
        exit_code=0,
        build=times.build,
        run=times.run,
        copy=times.copy,
        repeats=(times,) * runs,
    )
    assert ("fastest" in dict(rows(report, verbose=False))["wall"]) == (runs > 1)
