"""The story "Where did the time go?" of docs/traces.md, and its pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_pictures import EXAMPLE, main, plant, run

from pto_insight.traces import Trace
from pto_insight.traces.analysis import critical_path, limits, waits
from pto_insight.traces.summary import summary_text

TASKS = 128


def is_one_after_the_other(trace: Trace) -> bool:
    tasks = np.sort(trace.tasks, order="start")
    return bool((tasks["end"][:-1] <= tasks["start"][1:]).all())


def time_without_core(trace: Trace) -> int:
    """Return how long ready tasks waited for a free core."""
    return next(wait.total for wait in waits(trace) if wait.cause == "for a free core")


def test_the_trace_shows_the_defect(tmp_path: Path) -> None:
    slow = run(plant(tmp_path), tmp_path / "slow", "--set", "sim.workers=2")
    assert len(slow.tasks) == TASKS
    assert is_one_after_the_other(slow)
    chain = len(critical_path(slow).rows)
    assert chain >= TASKS - 8, "a product may end before its accumulation is submitted"
    assert limits(slow)["kernels"] == 0
    assert limits(slow)["dependencies"] > 0
    assert time_without_core(slow) == 0
    assert f"critical path: {chain} tasks" in summary_text(slow)
    products = slow.tasks["task"][slow.tasks["kernel"] == slow.kernels.index("gemm_tile")]
    submits = slow.details.submits[slow.details.rows(products)]
    last = slow.details.arguments[submits["first"] + submits["count"] - 1]
    assert {slow.details.texts[text] for text in last["text"]} == {"INOUT float32 256 x 256"}
    assert {slow.details.buffers[buffer] for buffer in last["buffer"]} == {"c"}


def test_the_example_is_not_one_chain(tmp_path: Path) -> None:
    right = run(EXAMPLE, tmp_path, "--set", "sim.workers=2")
    assert len(right.tasks) == TASKS
    assert len(critical_path(right).rows) <= 5, "a product and a chain of four accumulations"
    assert time_without_core(right) > 0, "64 products run on four cores"


@pytest.mark.toolchain
def test_the_pictures_are_made(tmp_path: Path) -> None:
    main(tmp_path, runs=2)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(found) == ["trace-right.png", "trace-slow.png", "trace-task.png"]
    for name, content in found.items():
        assert content[:8] == b"\x89PNG\r\n\x1a\n", name
        assert len(content) > 20_000, name
