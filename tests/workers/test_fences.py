"""The loss of a child with a fence is reported only when its fence is over."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lost_children import await_count_in_run, child_pids, kill

from pto_core import Out, OutExisting, Worker, task
from pto_core.errors import ChildDiedError, TaskFailedError
from pto_core.worker import child_group
from pto_core.worker.processes import ChildExit

FENCED, PLAIN = 0, 1  # the numbers of the children
WAIT_S = 0.3  # several times the interval between two checks of a fence
LIMIT_S = 20

MakeFenced = Callable[..., Worker]


class Fence:
    """A fence that the test ends; without that, it ends after its limit."""

    def __init__(self) -> None:
        self.limit_s = float(LIMIT_S)
        self.exits: list[ChildExit] = []
        self.over = threading.Event()
        self.error: Exception | None = None
        self._begun_s = 0.0

    def begin(self, ended: ChildExit) -> None:
        self.exits.append(ended)
        self._begun_s = time.monotonic()

    def is_over(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.over.is_set() or time.monotonic() > self._begun_s + self.limit_s


@pytest.fixture
def fence() -> Fence:
    return Fence()


@pytest.fixture
def fenced(make, fence: Fence, monkeypatch: pytest.MonkeyPatch) -> MakeFenced:
    """Make a Worker with two children, of which the first has the fence."""
    real = child_group.child_specs

    def specs(*arguments: Any) -> list[Any]:
        first, *others = real(*arguments)
        return [replace(first, fence=fence), *others]

    monkeypatch.setattr(child_group, "child_specs", specs)
    return lambda **settings: make(num_sub_workers=2, **settings)


@task
def run_until_killed(reading: int, runs: OutExisting, out: Out) -> None:
    """Count the starts of this task; the first start waits until its child is killed."""
    runs[0] += 1
    if runs[0] == 1:
        os.read(reading, 1)
    out[:] = os.getpid()


@task
def write(value: int, out: Out) -> None:
    out[:] = value


class Program:
    """A task for the child with the fence; submit() kills the child once the task has started."""

    def __init__(self, worker: Worker, pipe: tuple[int, int], **options: Any) -> None:
        self.worker, self.reading, self.options = worker, pipe[0], options
        self.runs, self.out = (worker.shared_array(1, "int64") for _ in range(2))
        worker.register(run_until_killed)
        worker.register(write)
        worker.init()
        self.pids = child_pids()

    def submit(self, session: Any) -> Any:
        """Submit the task, wait for its start, and kill its child."""
        handle = session.submit(
            run_until_killed,
            self.reading,
            self.runs,
            self.out,
            worker=FENCED,
            hint=True,
            **self.options,
        )
        limit = time.monotonic() + LIMIT_S
        while self.runs[0] == 0:
            assert time.monotonic() < limit
            time.sleep(0.001)
        kill(self.pids[FENCED])
        assert await_count_in_run(self.worker, "fenced", 1) == 1
        return handle

    def check_unreported(self, handle: Any) -> None:
        """Check that the exit has no effect while the fence is not over."""
        assert not handle.done()
        counts = self.worker.statistics()
        assert (counts["deaths"], counts["restarts"], counts["fenced"]) == (1, 0, 1)
        assert self.runs[0] == 1
        assert child_pids() == [self.pids[PLAIN]]


# Invariant: The loss of a child with a fence is reported when the fence is over, not earlier.
# Before that, no task runs again and no new process starts.
@pytest.mark.parametrize("policy", ["fail", "restart", "reroute"])
def test_the_loss_is_reported_when_the_fence_is_over(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int], policy: str
) -> None:
    worker = fenced(on_worker_death=policy)
    program = Program(worker, pipe, retries=0 if policy == "fail" else 1)

    def run() -> None:
        with worker.session() as session:
            handle = program.submit(session)
            assert not handle.wait(WAIT_S)
            program.check_unreported(handle)
            beside = worker.shared_array(1, "int64")
            assert session.submit(write, 3, beside, worker=PLAIN).wait(LIMIT_S)
            fence.over.set()

    if policy == "fail":
        with pytest.raises(ChildDiedError):
            run()
    else:
        run()
        assert program.out[0] not in (0, program.pids[FENCED])
        assert program.runs[0] == 2
    assert [ended.pid for ended in fence.exits] == [program.pids[FENCED]]
    assert worker.statistics()["fenced"] == 0
    is_restarted = policy != "reroute"
    assert await_count_in_run(worker, "deaths", 1) == 1
    with worker.session() as session:
        out = worker.shared_array(1, "int64")
        session.submit(write, 5, out, worker=FENCED if is_restarted else PLAIN)
    assert out[0] == 5
    assert worker.statistics()["restarts"] == is_restarted


def test_the_fence_bounds_the_wait_by_its_own_limit(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int]
) -> None:
    fence.limit_s = WAIT_S
    worker = fenced(on_worker_death="reroute")
    program = Program(worker, pipe, retries=1)
    with worker.session() as session:
        program.submit(session)
    assert program.out[0] == program.pids[PLAIN]


def test_ctrl_c_ends_the_run_when_the_fence_is_over(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int]
) -> None:
    fence.limit_s = 2 * WAIT_S
    worker = fenced(on_worker_death="restart")
    program = Program(worker, pipe, retries=1)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), worker.session() as session:  # noqa: PT012
        program.submit(session)
        os.kill(os.getpid(), signal.SIGINT)
    assert time.monotonic() - begun < LIMIT_S
    assert program.runs[0] == 1, "a cancelled task must not run again"
    with worker.session() as session:
        session.submit(write, 5, program.out, worker=FENCED)
    assert program.out[0] == 5
    assert worker.statistics()["restarts"] == 1


def test_close_does_not_wait_for_the_fence(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int]
) -> None:
    worker = fenced(on_worker_death="restart")
    program = Program(worker, pipe)
    session = worker.session()
    session.__enter__()
    program.submit(session)
    begun = time.monotonic()
    worker.close()
    assert time.monotonic() - begun < LIMIT_S / 2
    assert child_pids() == []


def test_a_time_limit_that_passes_meanwhile_does_not_hide_the_death(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int]
) -> None:
    worker = fenced()
    program = Program(worker, pipe, timeout_s=WAIT_S)
    with pytest.raises(ChildDiedError) as caught, worker.session() as session:  # noqa: PT012
        handle = program.submit(session)
        assert not handle.wait(3 * WAIT_S)
        fence.over.set()
    assert str(program.pids[FENCED]) in str(caught.value)


def test_a_child_whose_fence_raises_is_not_restarted(
    fenced: MakeFenced, fence: Fence, pipe: tuple[int, int]
) -> None:
    worker = fenced()
    program = Program(worker, pipe)
    failing = pytest.raises(TaskFailedError, match="no agent")
    with failing, worker.session() as session:
        program.submit(session)
        fence.error = RuntimeError("no agent")
    assert worker.statistics()["restarts"] == 0
