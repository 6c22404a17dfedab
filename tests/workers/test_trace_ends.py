"""Where a trace of a Worker begins and ends: inside runs, with a Ctrl-C, a close, or a death."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lost_children import await_sent, kill

import pto_core
from pto_core import InOut, Out, Worker, task
from pto_core.errors import PtoError, UsageError
from pto_insight import provider
from pto_insight.traces import Event
from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.worker_trace import WorkerTrace

MakeWorker = Callable[..., Worker]


@task
def logs(row: Out) -> None:
    with pto_core.range("inside"):
        row[:] = time.monotonic_ns(), os.getpid()


@task
def waits(flag: InOut, row: Out) -> None:
    while not flag[0]:
        time.sleep(0.001)
    row[:] = time.monotonic_ns(), os.getpid()


def check(trace: WorkerTrace, row: Any, entry: Any) -> None:
    """Compare a row of the trace with what the function logged."""
    time_ns, pid = entry
    assert row["pid"] == pid
    assert trace.epoch_ns + row["start"] <= time_ns + 50_000
    assert time_ns <= trace.epoch_ns + row["end"] + 50_000


def check_usable(worker: Worker) -> None:
    """Require that a new trace of the Worker is complete."""
    row = worker.shared_array(2, "int64")
    with worker.trace() as trace, worker.session() as s:
        s.submit(logs, row)
    (found,) = trace.tasks
    check(trace, found, row)
    assert ([one.name for one in trace.ranges], trace.missing) == (["inside"], ())


def test_parts_of_a_run_are_traced(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((5, 2), "int64")
    with worker.session() as s:
        s.submit(logs, rows[0]).result()
        with worker.trace(4) as first:
            s.submit(logs, rows[1]).result()
        s.submit(logs, rows[2]).result()
        with worker.trace(4) as second:
            s.submit(logs, rows[3]).result()
        s.submit(logs, rows[4])
    for trace, entry in ((first, rows[1]), (second, rows[3])):
        (row,) = trace.tasks
        check(trace, row, entry)
        assert trace.callable_name(row["callable"]) == "logs"
        assert (row["run"], row["result"], trace.missing) == (0, 0, ())
        assert [one.name for one in trace.ranges] == ["inside"]
    check_usable(worker)


@task
def sleeps(row: Out) -> None:
    time.sleep(0.01)


def test_tasks_that_were_submitted_before_the_block(make: MakeWorker, tmp_path: Path) -> None:
    worker = make(num_sub_workers=1, child_window=2)
    rows = worker.shared_array((50, 2), "int64")
    with worker.session() as s:
        for row in rows:
            s.submit(sleeps, row)
        with worker.trace(4) as trace:
            time.sleep(0.1)
    assert 0 < len(trace.tasks) < len(rows)
    assert (trace.tasks["submit"] == -1).all()
    assert (trace.tasks["end"] >= 0).any()
    sent = trace.tasks[trace.tasks["dispatch"] >= 0]
    assert {trace.callable_name(number) for number in sent["callable"]} == {"sleeps"}
    assert "Worker L3" in trace.table()
    assert len(trace.write(tmp_path / "part")) == 3


def test_a_trace_begins_inside_a_run_and_ends_after_it(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 2), "int64")
    with contextlib.ExitStack() as run:
        s = run.enter_context(worker.session())
        s.submit(logs, rows[0]).result()
        with worker.trace() as trace:
            s.submit(logs, rows[1])
            run.close()
            with worker.session() as s:
                s.submit(logs, rows[2])
    assert trace.tasks["run"].tolist() == [0, 1]
    for row, entry in zip(trace.tasks, rows[1:], strict=True):
        check(trace, row, entry)
    builds = trace.records[trace.records["event"] == Event.BUILD]
    assert builds["run"].tolist() == [0, 1]


def test_a_trace_is_refused_inside_a_trace(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    refused = pytest.raises(UsageError, match="is being traced already")
    with worker.trace(), refused, worker.trace():
        pass
    check_usable(worker)


def leave_with_an_open_session(worker: Worker, session: Any, row: Any) -> None:
    with worker.trace():
        session.__enter__().submit(logs, row).result()
        raise ValueError("of the block")


def test_the_exception_of_a_block_with_an_open_session_is_raised(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    session = worker.session()
    with pytest.raises(ValueError, match="of the block"):
        leave_with_an_open_session(worker, session, worker.shared_array(2, "int64"))
    session.__exit__(None, None, None)
    check_usable(worker)


def traced_until_interrupted(worker: Worker, s: Any, rows: Any, traces: list[Any]) -> None:
    with worker.trace() as trace:
        traces.append(trace)
        s.submit(logs, rows[1]).result()
        s.submit(waits, rows[0], rows[2])
        await_sent(worker)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_an_interrupt_ends_the_wait_for_a_child(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 2), "int64")
    traces: list[WorkerTrace] = []
    with worker.session() as s:
        with pytest.raises(KeyboardInterrupt):
            traced_until_interrupted(worker, s, rows, traces)
        rows[0] = 1
    (trace,) = traces
    check(trace, trace.tasks[trace.tasks["end"] >= 0][0], rows[1])
    assert trace.missing == (
        "L3/sub0: the end of the trace was interrupted, or the Worker was closed",
    )
    check_usable(worker)


def test_a_worker_that_is_closed_in_the_block(make: MakeWorker) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((4, 2), "int64")
    with worker.trace() as trace:
        with worker.session() as s:
            for row in rows:
                s.submit(logs, row)
        worker.close()
    assert (trace.missing, len(trace.ranges)) == ((), len(rows))
    for row, entry in zip(trace.tasks[trace.tasks["task"].argsort()], rows, strict=True):
        check(trace, row, entry)


def test_a_worker_that_is_closed_inside_a_run(make: MakeWorker) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 2), "int64")
    with worker.trace() as trace, contextlib.suppress(PtoError), worker.session() as s:
        s.submit(logs, rows[1]).result()
        s.submit(waits, rows[0], rows[2])
        await_sent(worker)
        begin = time.monotonic()
        worker.close()
        assert time.monotonic() - begin < 10
    check(trace, trace.tasks[trace.tasks["end"] >= 0][0], rows[1])
    (text,) = trace.missing
    assert text.startswith("L3/sub0: ")


class Deadly(bytes):
    """The packed trace of a child that dies when its parent reads it."""

    def __getitem__(self, at: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("on_worker_death", ["fail", "restart"])
def test_a_child_that_dies_while_its_trace_is_read(
    make: MakeWorker, on_worker_death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = provider.packed

    def deadly_in_one(trace: WorkerTraceData) -> bytes:
        content = packed(trace)
        return Deadly(content) if trace.paths == ("L3/sub0",) else content

    monkeypatch.setattr(provider, "packed", deadly_in_one)
    worker = make(num_sub_workers=2, on_worker_death=on_worker_death)
    rows = worker.shared_array((2, 2), "int64")
    with worker.trace() as trace, worker.session() as s:
        for child, row in enumerate(rows):
            s.submit(logs, row, worker=child)
    for row, entry in zip(trace.tasks[trace.tasks["task"].argsort()], rows, strict=True):
        check(trace, row, entry)
    assert [one.path for one in trace.ranges] == ["L3/sub1"]
    (text,) = trace.missing
    assert text.startswith("L3/sub0: ")


def test_a_child_that_is_restarted_during_the_begin(make: MakeWorker) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    rows = worker.shared_array((2, 2), "int64")
    with worker.session() as s:
        s.submit(logs, rows[0], worker=1)
    with pto_core.range("around"):
        kill(int(rows[0][1]))
        with worker.trace() as trace, worker.session() as s:
            s.submit(logs, rows[1], worker=1)
    (row,) = trace.tasks[trace.tasks["end"] >= 0]
    check(trace, row, rows[1])
    (one,) = trace.ranges
    assert (one.name, one.path, one.depth) == ("inside", "L3/sub1", 0)
