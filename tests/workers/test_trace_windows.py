"""The window of a Worker's trace, the files of single tasks, and the flight recorder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import CallConfig, ChipCallable, Out, Worker, kernel, task
from pto_core.errors import ChildDiedError, DeadlockError, PtoError, TaskFailedError, UsageError
from pto_insight.traces import Event
from pto_insight.traces.files import read_trace
from pto_insight.traces.worker_trace import WorkerTrace, read_any_trace

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}
AFTER_S, FOR_S = 0.05, 0.1


def naps(args: Any) -> None:
    with pto_core.range("nap"):
        time.sleep(0.01)


@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7


def on_chip(rt: Any, out: Out) -> None:
    rt.submit(fill, out)


def fails_on_chip(rt: Any, out: Out) -> None:
    rt.submit(fill, out)
    raise ValueError("after a submit")


def test_a_window_is_exact_at_every_level(make: Callable[..., Worker]) -> None:
    host = make(num_sub_workers=1, device_ids=[0], **CHIPS)
    chip, sub = host.register(ChipCallable(on_chip)), host.register(naps)

    def on_host(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(chip, _one(args.tensors[0]))
        orch.submit_sub(sub, _one(args.tensors[1]))

    worker = make(4, trace_after_s=AFTER_S, trace_for_s=FOR_S)
    worker.add_worker(host)
    graph = worker.register(on_host)
    arrays = worker.shared_array(4), worker.shared_array(1, "int64")
    args = _one(*arrays)
    worker.run(lambda orch, _, config: orch.submit_next_level(graph, args))
    runs = 0
    before = time.monotonic_ns()
    with worker.trace() as trace:
        begin = time.monotonic_ns()
        while time.monotonic_ns() < begin + 1.5 * (AFTER_S + FOR_S) * 1e9:
            worker.run(lambda orch, _, config: orch.submit_next_level(graph, args))
            runs += 1
    assert (trace.lost_total, trace.missing) == (0, ())
    for path in trace.children:
        mine = trace.records[trace.records["worker"] == trace.paths.index(path)]
        ends = trace.epoch_ns + mine["end"]
        assert before + AFTER_S * 1e9 <= ends.min() <= ends.max() <= begin + (AFTER_S + FOR_S) * 1e9
    assert 0 < len(trace.devices["L4/host0/chip0"].tasks) < runs
    naps_seen = [one for one in trace.ranges if one.name == "nap"]
    assert 0 < len(naps_seen) < runs


def _one(*arrays: Any) -> Any:
    from pto_core import TaskArgs, TensorArgType

    args = TaskArgs()
    for array in arrays:
        args.add_tensor(array, TensorArgType.OUTPUT_EXISTING)
    return args


def test_the_diagnostics_of_a_task_are_written_by_its_chip(
    make: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = make(device_ids=[0], **CHIPS)
    chip, args = worker.register(ChipCallable(on_chip)), _one(worker.shared_array(4))
    config = CallConfig(
        enable_l2_swimlane=2, enable_scope_stats=1, output_prefix=str(tmp_path / "step")
    )

    def graph(orch: Any, _: Any, __: Any) -> None:
        orch.submit_next_level(chip, args, config)
        orch.submit_next_level(chip, args)
        orch.submit_next_level(chip, args, config)

    worker.run(graph)
    endings = (".trace.npz", ".pftrace", ".html", ".stats.json")
    written = {f"step.device0.run{run}{ending}" for run in (1, 3) for ending in endings}
    assert {path.name for path in tmp_path.iterdir()} == written
    trace = read_trace(tmp_path / "step.device0.run3.trace.npz")
    assert [trace.kernels[task["kernel"]] for task in trace.tasks] == ["fill"]
    assert (trace.records["event"] == Event.COLLECT).any(), "the records of level 2"
    with worker.trace() as whole:
        worker.run(graph)
    assert len(whole.devices["L3/chip0"].tasks) == 3
    written |= {f"step.device0.run{run}.stats.json" for run in (4, 6)}
    assert {path.name for path in tmp_path.iterdir()} == written


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)], ids=["different", "same"])
def test_the_diagnostics_of_a_run_reach_the_chips_of_each_host(
    make: Callable[..., Worker], tmp_path: Path, devices: tuple[int, int]
) -> None:
    worker = make(4)
    graphs = []
    for device in devices:
        host = make(device_ids=[device], **CHIPS)
        worker.add_worker(host)
        graphs.append(worker.register(_passes_to(host.register(ChipCallable(on_chip)))))
    args = [_one(worker.shared_array(4)) for _ in devices]
    config = CallConfig(enable_scope_stats=1, output_prefix=str(tmp_path / "step"))

    def on_hosts(orch: Any, _: Any, __: Any) -> None:
        for number, graph in enumerate(graphs):
            orch.submit_next_level(graph, args[number], worker=number)

    worker.run(on_hosts, config=config)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"step.device{device}.run1.stats.json" for device in devices}


def _passes_to(chip: Any) -> Any:
    def on_host(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(chip, _one(args.tensors[0]))

    return on_host


def test_a_failing_task_on_a_chip_leaves_its_trace(
    make: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = make(device_ids=[0], **CHIPS)
    chip, args = worker.register(ChipCallable(fails_on_chip)), _one(worker.shared_array(4))
    config = CallConfig(enable_l2_swimlane=1, output_prefix=str(tmp_path / "out" / "step"))
    with pytest.raises(TaskFailedError, match="after a submit"):
        worker.run(lambda orch, *_: orch.submit_next_level(chip, args), config=config)
    assert len(read_trace(tmp_path / "out" / "step.device0.run1.trace.npz").tasks) == 1


@task
def works(row: Out) -> None:
    row[:] = 1


@task
def dies(row: Out) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task
def hangs(row: Out) -> None:
    time.sleep(60)


@task
def fails(row: Out) -> None:
    raise ValueError("for a flight recorder")


def runs_until(worker: Worker, last: Any, rows: Any) -> None:
    with worker.session() as s:
        for row in rows[:-1]:
            s.submit(works, row)
        if last is None:
            s.empty((1 << 12,), "uint8")
            s.empty((1 << 13,), "uint8")  # more than the rest of the ring
        else:
            s.submit(last, rows[-1], timeout_s=0.5)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (dies, ChildDiedError),
        (hangs, PtoError),
        (fails, TaskFailedError),
        (None, DeadlockError),
    ],
    ids=["crash", "timeout", "error", "deadlock"],
)
def test_a_flight_recorder_keeps_the_last_records(
    make: Callable[..., Worker], tmp_path: Path, last: Any, error: type[PtoError]
) -> None:
    settings = {"trace_ring_records": 8, "heap_ring_size": 1 << 13}
    prefix = tmp_path / "out" / "last"
    worker = make(num_sub_workers=1, flight_recorder=prefix, on_worker_death="restart", **settings)
    rows = worker.shared_array((20, 1))
    with worker.session() as s:
        s.submit(works, rows[0])
    held = prefix.with_name("last.L3.flight")
    assert list(prefix.parent.iterdir()) == [held], "a run that succeeds leaves no trace"
    with pytest.raises(error) as raised:
        runs_until(worker, last, rows)
    file = prefix.with_name("last.L3.trace.npz")
    assert f"the last records of each track are in {file}" in raised.value.__notes__
    trace = read_any_trace(file)
    assert isinstance(trace, WorkerTrace)
    assert trace.lost_total == 0
    tracks, counts = np.unique(trace.records["track"], return_counts=True)
    assert (tracks.tolist(), (counts <= 8).all()) == ([0, 1, 5], True)
    if last is not None:
        (row,) = trace.tasks[trace.tasks["task"] == trace.tasks["task"].max()]
        assert trace.callable_name(row["callable"]) == last.__name__
        assert (row["start"] >= 0, row["result"]) == (True, 1)
        assert trace.submitted(row)[0].startswith("test_trace_windows.py:")
    with worker.trace() as whole, worker.session() as s:
        s.submit(works, rows[0])
    assert (whole.records["event"] == Event.START).sum() == 1
    with pytest.raises(TaskFailedError) as again:
        runs_until(worker, fails, rows)
    assert again.value.__notes__, "the recorder continues after a failure and a trace"
    worker.close()
    assert not held.exists()


CRASHES = """
import os, signal
from pto_core import Out, Worker, task

@task
def works(row: Out):
    row[:] = 1

@task
def last(row: Out):
    row[:] = 2

with Worker(level=3, num_sub_workers=1) as worker:
    rows = worker.shared_array((40, 1))
    with worker.session() as s:
        s.submit(works, rows[0])
    with worker.session() as s:
        for row in rows[:-1]:
            s.submit(works, row)
        s.submit(last, rows[-1]).result()
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_worker_whose_process_crashes_leaves_a_file_of_last_records(tmp_path: Path) -> None:
    environment = os.environ | {
        "PTO_FLIGHT_RECORDER": str(tmp_path / "last"),
        "PTO_TRACE_RING_RECORDS": "16",
    }
    begin = time.monotonic_ns()
    done = subprocess.run([sys.executable, "-c", CRASHES], env=environment, check=False)
    end = time.monotonic_ns()
    assert done.returncode == -signal.SIGSEGV
    trace = read_any_trace(tmp_path / "last.L3.flight")
    assert isinstance(trace, WorkerTrace)
    assert trace.paths == ("L3", "L3/sub0")
    _, counts = np.unique(trace.records["track"], return_counts=True)
    assert (len(counts), (counts >= 15).all(), (counts <= 16).all()) == (3, True, True)
    row = trace.tasks[trace.tasks["task"].argmax()]
    assert trace.callable_name(row["callable"]) == "last"
    assert begin <= trace.epoch_ns <= trace.epoch_ns + row["start"] <= end
    assert 0 <= row["submit"] <= row["dispatch"] <= row["start"] <= row["end"] <= row["complete"]
    assert any("its process crashed" in reason for reason in trace.missing)
    assert "last" in trace.table()
    assert trace.write(tmp_path / "readable")[0].exists()


def test_another_file_is_no_flight_recorder_of_a_worker(
    make: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = make(num_sub_workers=1, flight_recorder="/dev/null/x")
    with pytest.raises(UsageError, match=r"/dev/null/x\.L3\.flight, cannot be written"):
        worker.run(lambda orch, args, config: None)
    (tmp_path / "x.flight").write_bytes(bytes(1 << 17))
    with pytest.raises(UsageError, match="not the file of a flight recorder"):
        read_any_trace(tmp_path / "x.flight")
