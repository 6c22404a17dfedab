"""The trace of a Worker with a child on another host: measured offset of the clock, and tracks."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote_hosts import on_sub, running_agent, task_args

import pto_core
from pto_core import Worker
from pto_insight.traces.worker_trace import WorkerTrace

TOLERANCE_NS = 50_000
"""The error of a conversion between two clocks of one host."""
AHEAD_S = 1000
SHIFTED = ("unshare", "--time", "--monotonic", str(AHEAD_S))


def logs(args: Any) -> None:
    begin = time.monotonic_ns()
    with pto_core.range("far"):
        np.sqrt(np.arange(300.0))
    args.tensor(1)[:] = begin, time.monotonic_ns()


def traced(agent: Any, runs: int) -> tuple[WorkerTrace, Any]:
    """Run a task on the host ``runs`` times; return the trace, and what the tasks logged."""
    remote = agent.worker(num_sub_workers=1)
    far = on_sub(remote.register(logs))
    with Worker(level=4) as worker:
        far = worker.register(far)
        worker.add_worker(remote)
        entries = worker.shared_array((runs, 2), "int64")
        with worker.trace(3) as trace:
            for entry in entries:
                given = task_args(entry, entry)
                worker.run(lambda orch, _, config, given=given: orch.submit_next_level(far, given))
        return trace, entries.copy()


def check(trace: WorkerTrace, entries: Any, ahead_ns: int) -> None:
    host = trace.paths[1]
    error = trace.clocks[host] + TOLERANCE_NS
    assert 0 < trace.clocks[host] < 1_000_000_000
    assert f"{host}: clock of another host, +- " in trace.note
    assert (trace.missing, trace.lost_total) == ((), 0)
    above = trace.tasks[trace.tasks["worker"] == 0]
    inside = trace.tasks[trace.tasks["worker"] == 1]
    assert len(above) == len(inside) == len(trace.ranges) == len(entries)
    assert {trace.path(child) for child in inside["child"]} == {f"{host}/sub0"}
    assert (inside["processor"] > 0).all()
    assert (above["processor"] == -1).all(), "other processes run the tasks of a graph"
    for outer, row, mark, (begin, end) in zip(above, inside, trace.ranges, entries, strict=True):
        assert trace.epoch_ns + row["start"] <= begin - ahead_ns + error
        assert trace.epoch_ns + row["end"] >= end - ahead_ns - error
        assert begin - ahead_ns - error <= trace.epoch_ns + mark.start
        assert trace.epoch_ns + mark.end <= end - ahead_ns + error
        assert outer["dispatch"] <= row["submit"] + error
        assert row["complete"] <= outer["complete"] + error


def test_tracks_of_another_host_are_on_the_clock_of_this_host(keys: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path, "zmq", keys) as agent:
        check(*traced(agent, 5), 0)
        agent.await_no_session()


def may_shift_clocks() -> bool:
    return subprocess.run([*SHIFTED, "true"], capture_output=True, check=False).returncode == 0


def test_a_host_whose_clock_is_ahead(keys: Path, tmp_path: Path) -> None:
    within: Sequence[str] = SHIFTED
    if not may_shift_clocks():  # no change of the checkout can permit time namespaces
        pytest.xfail("not run: this machine permits no time namespaces")
    with running_agent(tmp_path, "zmq", keys, within=within) as agent:
        trace, entries = traced(agent, 2)
    assert abs(entries[0][0] - time.monotonic_ns()) > AHEAD_S * 0.9e9, "the clock is not ahead"
    check(trace, entries, AHEAD_S * 1_000_000_000)
