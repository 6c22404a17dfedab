"""The trace of a Worker equals what the functions logged about themselves, at every level."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_arguments import given

import pto_core
from pto_core import ChipCallable, In, InOut, Out, TensorArgType, Worker, kernel, task
from pto_core.cli.main import main
from pto_core.errors import ChildDiedError, DeadlockError, TaskFailedError, UsageError
from pto_insight.traces import Event
from pto_insight.traces.worker_trace import WorkerTrace, read_any_trace

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}
EXISTING = TensorArgType.OUTPUT_EXISTING
TOLERANCE_NS = 50_000
"""The error of a conversion between two clocks."""
OVERHEAD_NS = 500_000_000
"""The most time between a function and its call on a busy machine."""
TASKS = 30


def log(row: Any, begin: int) -> None:
    row[:] = begin, time.monotonic_ns(), os.getpid()


@task
def logs(after: In, row: Out) -> None:
    begin = time.monotonic_ns()
    np.sqrt(np.arange(300.0))
    log(row, begin)


def logs_of_graph(args: Any) -> None:
    begin = time.monotonic_ns()
    log(args.tensor(0), begin)


@task
def fails(row: Out) -> None:
    raise ValueError("for a trace")


MARKER: list[Path] = []
"""The file that :func:`dies_once` creates; forked children inherit its path."""


@task
def dies_once(row: Out) -> None:
    begin = time.monotonic_ns()
    if not MARKER[-1].exists():
        MARKER[-1].touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with pto_core.range("inside"):
        log(row, begin)


def rows_of(trace: WorkerTrace, path: str | None = None) -> Any:
    number = trace.paths.index(path or trace.paths[0])
    mine = trace.tasks[trace.tasks["worker"] == number]
    return mine[np.argsort(mine["task"], kind="stable")]


def check(trace: WorkerTrace, row: Any, entry: Any) -> None:
    """Compare a row of the trace with what the function logged."""
    begin, end, pid = entry
    assert row["pid"] == pid
    assert -TOLERANCE_NS <= begin - (trace.epoch_ns + row["start"]) < OVERHEAD_NS
    assert -TOLERANCE_NS <= trace.epoch_ns + row["end"] - end < OVERHEAD_NS


def run_chain(worker: Worker, rows: Any) -> None:
    """Submit tasks, each after the one three before it."""
    with worker.session() as s:
        for i in range(len(rows)):
            s.submit(logs, rows[max(i - 3, 0) if i % 3 == 0 else i - 1], rows[i])


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_the_trace_equals_the_log_of_the_functions(
    make: Callable[..., Worker], start_method: str
) -> None:
    worker = make(num_sub_workers=2, start_method=start_method)
    rows = worker.shared_array((TASKS, 3), "int64")
    with worker.trace(4) as trace:
        run_chain(worker, rows)
    assert (trace.lost_total, trace.missing) == (0, ())
    found = rows_of(trace)
    assert len(found) == TASKS
    for row, entry in zip(found, rows, strict=True):
        check(trace, row, entry)
    assert {trace.callable_name(number) for number in found["callable"]} == {"logs"}
    assert (found["result"] == 0).all()
    assert (found["submit"] <= found["dispatch"]).all()
    assert (found["dispatch"] <= found["start"]).all()
    assert (found["start"] <= found["end"]).all()
    assert (found["end"] <= found["complete"]).all()
    for child in np.unique(found["child"]):
        mine = np.sort(found[found["child"] == child], order="start")
        assert (mine["end"][:-1] <= mine["start"][1:]).all()
        assert trace.path(child) in ("L3/sub0", "L3/sub1")
    check_edges(trace, found)


def check_edges(trace: WorkerTrace, found: Any) -> None:
    edges = trace.records[trace.records["event"] == Event.EDGE]
    released = trace.records[trace.records["event"] == Event.RELEASE]
    assert {(one["a"], one["b"]) for one in edges} == {(one["a"], one["b"]) for one in released}
    complete = {row["task"]: row["complete"] for row in found}
    assert (found["ready"] >= found["submit"]).all()
    for row in found[found["released_by"] >= 0]:
        assert complete[row["released_by"]] <= row["ready"]


def test_edges_are_exact(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((5, 3), "int64")
    worker.register(logs)  # register it now: a child that waits receives no callable
    with worker.trace(4) as trace, worker.session() as s:
        s.submit(waits_for_flag, rows[0], rows[1])
        s.submit(logs, rows[1], rows[2])
        s.submit(logs, rows[1], rows[3])
        s.submit(logs, rows[3], rows[4])
        rows[0] = 1  # all tasks are submitted, so each dependency is an edge
    expected = {(0, 1), (0, 2), (2, 3)}
    found = rows_of(trace)
    first = found["task"][0]
    for event in (Event.EDGE, Event.RELEASE):
        mine = trace.records[trace.records["event"] == event]
        edges = [(int(one["a"]) - first, int(one["b"]) - first) for one in mine]
        assert sorted(edges) == sorted(expected)
    assert [by - first if by >= 0 else by for by in found["released_by"]] == [-1, 0, 0, 2]


def test_each_level_contains_the_levels_below_it(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((TASKS, 3), "int64")
    groups = []
    for level in (1, 2, 3, 4):
        with worker.trace(level) as trace:
            run_chain(worker, rows)
            time.sleep(0.01)
            run_chain(worker, rows)
        groups.append(set(np.unique(trace.records["event"] >> 4)))
        assert len(trace.tasks) == 2 * TASKS
        assert set(trace.tasks["run"]) == {0, 1}
    assert groups[:3] == [{0}, {0, 1}, {0, 1, 2}]
    assert groups[2] <= groups[3]


@task
def sleeps(space: InOut, row: Out) -> None:
    begin = time.monotonic_ns()
    time.sleep(0.01)
    log(row, begin)


def test_waits_equal_the_log_of_the_program(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1, heap_ring_size=1 << 13)
    rows = worker.shared_array((8, 3), "int64")
    with worker.session() as s:  # the first run prepares the ring
        s.submit(sleeps, s.empty((512,), "int64"), rows[0])
    allocations, waits = [], []
    with worker.trace(3) as trace, worker.session() as s:
        for row in rows:
            with s.scope():
                begin = time.monotonic_ns()
                space = s.empty((512,), "int64")  # two fill the ring
                allocations.append((begin, time.monotonic_ns()))
                last = s.submit(sleeps, space, row)
        begin = time.monotonic_ns()
        last.result()
        waits.append((begin, time.monotonic_ns()))
    check_waits(trace, Event.BACK_PRESSURE, allocations)
    check_waits(trace, Event.PARK, waits)


def check_waits(trace: WorkerTrace, event: Event, log: list[tuple[int, int]]) -> None:
    """Require that each wait of the program is in a call of the log, and that they fill half."""
    mine = trace.records[(trace.records["event"] == event) & (trace.records["track"] == 0)]
    for wait in mine:
        start, end = trace.epoch_ns + wait["start"], trace.epoch_ns + wait["end"]
        assert any(
            begin <= start + TOLERANCE_NS and end <= over + TOLERANCE_NS for begin, over in log
        )
    lengths = mine["end"] - mine["start"]
    assert lengths.sum() > sum(over - begin for begin, over in log) / 2


def run_into_a_deadlock(worker: Worker, row: Any, waits: list[tuple[int, int]]) -> None:
    with worker.session() as s:
        s.submit(sleeps, s.empty((512,), "int64"), row)
        s.empty((512,), "int64")  # the ring is full
        begin = time.monotonic_ns()
        try:
            s.empty((512,), "int64")  # the task may free memory, until it ends
        finally:
            waits.append((begin, time.monotonic_ns()))


def test_a_wait_that_ends_by_an_error_has_an_end(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1, heap_ring_size=1 << 13)
    row = worker.shared_array(3, "int64")
    waits: list[tuple[int, int]] = []
    with worker.trace(3) as trace, pytest.raises(DeadlockError):
        run_into_a_deadlock(worker, row, waits)
    check_waits(trace, Event.BACK_PRESSURE, waits)


@task
def waits_for_flag(flag: InOut, row: Out) -> None:
    begin = time.monotonic_ns()
    while not flag[0]:
        time.sleep(0.001)
    log(row, begin)


def test_a_child_that_waits_for_another_child(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((3, 3), "int64")

    def run(delay_s: float) -> None:
        rows[0] = 0
        with worker.session() as s:
            s.submit(waits_for_flag, rows[0], rows[1], worker=0)
            threading.Timer(delay_s, rows[0].fill, [1]).start()
            s.submit(logs, rows[1], rows[2], worker=1)

    run(0.0)  # the children receive their functions
    with worker.trace(3) as trace:
        run(0.1)
    first, second = rows_of(trace)
    (wait,) = trace.records[trace.records["event"] == Event.REQUIRE]
    assert trace.child_path(0, wait["track"]) == "L3/sub1"
    assert wait["b"] == 0, "it waits for child 0"
    assert second["dispatch"] <= wait["start"] + TOLERANCE_NS
    assert wait["start"] < first["end"] <= wait["end"] + TOLERANCE_NS
    assert wait["end"] <= second["start"] + TOLERANCE_NS


@task
def sleeps_briefly(row: Out) -> None:
    begin = time.monotonic_ns()
    time.sleep(0.05)
    log(row, begin)


def test_a_function_that_waits_has_a_small_processor_time(
    make: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(3, "int64")
    for level, is_known in ((2, False), (3, True)):
        with worker.trace(level) as trace, worker.session() as s:
            s.submit(sleeps_briefly, row)
        (found,) = rows_of(trace)
        assert found["end"] - found["start"] >= 50_000_000
        assert (0 < int(found["processor"]) < 25_000_000) is is_known
        assert ("processor" in trace.table()) is is_known
        trace.write(tmp_path / "step")
        assert (b"processor" in (tmp_path / "step.pftrace").read_bytes()) is is_known


def test_an_idle_child_has_one_wait(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 3), "int64")
    with worker.trace(3) as trace:
        for row in rows:
            time.sleep(0.4)
            run_chain(worker, row.reshape(1, 3))
    first, second = rows_of(trace)
    is_wait = (trace.records["event"] == Event.PARK) & (trace.records["track"] >= 5)
    waits = trace.records[is_wait]
    idle = waits[(waits["start"] >= first["end"]) & (waits["end"] <= second["start"])]
    assert len(idle) <= 2
    assert (idle["end"] - idle["start"]).sum() > 0.3e9
    assert len(waits) <= 5


def test_a_tiny_ring_loses_records_and_counts_them(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1, trace_ring_records=2)
    rows = worker.shared_array((200, 3), "int64")
    with worker.trace(1) as trace, worker.session() as s:
        for row in rows:
            s.submit(logs, row, row)
    child = trace.records[trace.records["track"] >= 5]
    assert len(child) + trace.lost.get("L3/sub0", 0) == 2 * len(rows)
    assert "L3/sub0" in trace.lost
    assert "records were dropped" in trace.table()
    for row in rows_of(trace):
        if row["start"] >= 0 and row["end"] >= 0:
            check(trace, row, rows[row["task"] - rows_of(trace)["task"].min()])


def test_a_limit_of_records_is_exact(make: Callable[..., Worker]) -> None:
    def traced(**settings: Any) -> WorkerTrace:
        worker = make(num_sub_workers=1, **settings)  # so that no task moves to another child
        rows = worker.shared_array((TASKS, 3), "int64")
        with worker.trace(1) as trace:
            run_chain(worker, rows)
        return trace

    whole, part = traced(), traced(trace_records=50)
    assert whole.lost_total == 0
    assert len(part.records) == 50
    assert len(part.records) + part.lost_total == len(whole.records)


def run_until_death(worker: Worker, rows: Any) -> None:
    with worker.session() as s:
        for row in rows[:-1]:
            s.submit(logs, row, row)
        s.submit(dies_once, rows[-1])


def test_a_killed_child_leaves_its_records(make: Callable[..., Worker], tmp_path: Path) -> None:
    MARKER.append(tmp_path / "marker")
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((4, 3), "int64")
    with worker.trace() as trace, pytest.raises(ChildDiedError):
        run_until_death(worker, rows)
    found = rows_of(trace)
    for row, entry in zip(found[:3], rows[:3], strict=True):
        check(trace, row, entry)
    assert (found["start"][3] >= 0, found["end"][3], found["result"][3]) == (True, -1, 1)
    (text,) = trace.missing
    assert text.startswith("L3/sub0: its process exited during the trace")
    assert f"lost: dies_once, task {found['task'][3]}, after at most " in trace.table()
    _, timeline, page = trace.write(tmp_path / "run")
    assert b"dies_once (lost)" in timeline.read_bytes()
    assert "dies_once (lost)" in page.read_text()


def test_a_restarted_child_continues_its_track(make: Callable[..., Worker], tmp_path: Path) -> None:
    MARKER.append(tmp_path / "marker")
    worker = make(num_sub_workers=1, on_worker_death="restart")
    rows = worker.shared_array((2, 3), "int64")
    with worker.trace() as trace, pto_core.range("around"), worker.session() as s:
        s.submit(dies_once, rows[0], retries=1)
        s.submit(logs, rows[0], rows[1])
    first, again, last = rows_of(trace)
    assert (first["task"], first["end"]) == (again["task"], -1)
    assert first["start"] >= 0
    assert first["pid"] != again["pid"]
    check(trace, again, rows[0])
    check(trace, last, rows[1])
    assert [row["result"] for row in (first, again, last)] == [1, 0, 0]
    assert len(trace.missing) == 1
    depths = {(one.name, one.path): one.depth for one in trace.ranges}
    assert depths == {("around", "L3"): 0, ("inside", "L3/sub0"): 0}  # it was forked in the range


@task
def one_fails(row: InOut) -> None:
    fails = row[0] < 0
    log(row, time.monotonic_ns())
    if fails:
        raise ValueError("for a trace")


def run_failing_group(worker: Worker, rows: Any, traces: list[WorkerTrace]) -> None:
    with worker.trace() as trace, worker.session() as s:
        traces.append(trace)
        s.submit_group(one_fails, [(rows[0],), (rows[1],)])


def test_each_member_of_a_failed_group_has_its_own_result(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((2, 3), "int64")
    rows[:] = [[0, 0, 0], [-1, 0, 0]]
    traces: list[WorkerTrace] = []
    with pytest.raises(TaskFailedError):
        run_failing_group(worker, rows, traces)
    (trace,) = traces
    found = np.sort(rows_of(trace), order="member")
    assert found["member"].tolist() == [0, 1]
    assert found["result"].tolist() == [0, 1]
    for row, entry in zip(found, rows, strict=True):
        check(trace, row, entry)


def run_failing(worker: Worker, rows: Any, traces: list[WorkerTrace]) -> None:
    with worker.trace() as trace, worker.session() as s:
        traces.append(trace)
        s.submit(fails, rows[0])
        s.submit(logs, rows[0], rows[1])


def test_a_failed_run_is_traced(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 3), "int64")
    traces = []
    with pytest.raises(TaskFailedError):
        run_failing(worker, rows, traces)
    (trace,) = traces
    assert rows_of(trace)["result"].tolist() == [1, 2]


def test_ranges_of_all_threads_and_processes(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((1, 3), "int64")

    def in_a_thread() -> None:
        with pto_core.range("beside"):
            pass

    def program() -> None:
        with pto_core.range("prefill"), pto_core.range("layer"):
            with worker.session() as s:
                s.submit(ranged, rows[0], rows[0])
            thread = threading.Thread(target=in_a_thread, name="helper")
            thread.start()
            thread.join()

    with pto_core.range("outside"), worker.trace() as trace:
        program()
    found = {one.name: one for one in trace.ranges}
    assert set(found) == {"prefill", "layer", "beside", "inside"}
    assert (found["prefill"].depth, found["layer"].depth) == (0, 1)
    assert found["prefill"].start <= found["layer"].start <= found["layer"].end
    assert (found["beside"].thread, found["inside"].path) == ("helper", "L3/sub0")
    (row,) = rows_of(trace)
    assert row["start"] <= found["inside"].start + TOLERANCE_NS
    assert found["inside"].end <= row["end"] + TOLERANCE_NS
    check(trace, row, rows[0])
    assert "inside" in trace.table()


@task
def ranged(after: In, row: Out) -> None:
    begin = time.monotonic_ns()
    with pto_core.range("inside"):
        log(row, begin)


@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7


def on_chip(rt: Any, out: Out) -> None:
    with pto_core.range("on the chip"):
        for row in range(5):
            rt.submit(fill, out[row])


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_the_tree_of_a_nested_worker_with_a_chip(
    make: Callable[..., Worker], start_method: str
) -> None:
    host = make(num_sub_workers=1, device_ids=[0], start_method=start_method, **CHIPS)
    chip, sub = host.register(ChipCallable(on_chip)), host.register(logs_of_graph)

    def on_host(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(chip, given((args.tensors[0], EXISTING)))
        orch.submit_sub(sub, given((args.tensors[1], EXISTING)))

    worker = make(4, start_method=start_method)
    worker.add_worker(host)
    graph = worker.register(on_host)
    array, entry = worker.shared_array((5, 4)), worker.shared_array(3, "int64")
    args = given((array, EXISTING), (entry, EXISTING))
    with worker.trace() as trace:
        for _ in range(2):
            worker.run(lambda orch, _, config: orch.submit_next_level(graph, args))
    assert (array == 7).all()
    assert trace.paths == ("L4", "L4/host0", "L4/host0/chip0", "L4/host0/sub0")
    above, inside = rows_of(trace), rows_of(trace, "L4/host0")
    assert (len(above), len(inside)) == (2, 4)
    subs = inside[inside["child"] == trace.paths.index("L4/host0/sub0")]
    check(trace, subs[1], entry)
    for row in inside:
        outer = above[row["run"]]
        assert outer["start"] <= row["submit"] + TOLERANCE_NS
        assert row["complete"] <= outer["end"] + TOLERANCE_NS
    device = trace.devices["L4/host0/chip0"]
    assert device.epoch_ns == trace.epoch_ns
    assert len(device.tasks) == 10
    chips = inside[inside["child"] == trace.paths.index("L4/host0/chip0")]
    for row in device.tasks:
        outer = chips[row["run"]]
        assert outer["start"] <= row["start"] + TOLERANCE_NS
        assert row["end"] <= outer["end"] + TOLERANCE_NS
    assert [one.name for one in trace.ranges] == ["on the chip"] * 2
    for one, row in zip(trace.ranges, chips, strict=True):
        assert (one.path, one.thread) == ("L4/host0/chip0", "host")
        assert row["start"] <= one.start + TOLERANCE_NS
        assert one.end <= row["end"] + TOLERANCE_NS
    assert "not the chip's" in trace.note
    assert "device L4/host0/chip0" in trace.table()


def test_replays_are_traced(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    sub = worker.register(logs_of_graph)
    entry = worker.shared_array(3, "int64")
    args = given((entry, EXISTING))

    def graph(orch: Any, view: Any, config: Any) -> None:
        orch.submit_sub(sub, given((view.tensors[0], EXISTING)))

    captured = worker.capture(graph, args)
    with worker.trace() as trace:
        worker.replay(captured, args)
        worker.replay(captured, args)
    found = rows_of(trace)
    assert found["run"].tolist() == [0, 1]
    check(trace, found[1], entry)


@pytest.mark.parametrize("level", [0, 5, True, "1", None])
def test_a_wrong_level_is_refused(make: Callable[..., Worker], level: Any) -> None:
    worker = make(num_sub_workers=1)
    with pytest.raises(UsageError, match="pass 1, 2, 3 or 4"), worker.trace(level):
        pass


def test_the_files_of_a_trace(
    make: Callable[..., Worker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 3), "int64")
    with worker.trace() as trace, pto_core.range("all"):
        run_chain(worker, rows)
    written = trace.write(tmp_path / "run")
    assert [path.name for path in written] == ["run.trace.npz", "run.pftrace", "run.html"]
    again = read_any_trace(tmp_path)
    assert isinstance(again, WorkerTrace)
    assert again.tasks.tolist() == trace.tasks.tolist()
    assert (again.ranges, again.paths) == (trace.ranges, trace.paths)
    assert main(["trace", "summary", str(tmp_path)]) == 0
    assert "Worker L3: 3 tasks" in capsys.readouterr().out
    assert main(["trace", "diff", str(written[0]), str(written[0])]) == 0
    first, _, whole, *lines = capsys.readouterr().out.splitlines()
    assert first == "times: host time; host time"
    assert whole.startswith("Worker L3: ")
    assert whole.endswith(" +0.0 %")
    assert ["logs", "3", "3"] in [line.split()[:3] for line in lines]
