"""Several threads share one Worker: each run has its own results, and raises its own errors.

`.ci/nightly` runs the hammer with 20,000 runs of each thread.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest
from task_arguments import given
from thread_states import CallInThread, await_blocked

from pto_core import TensorArgType, Worker
from pto_core.errors import TaskFailedError, UsageError, WorkerClosedError

THREADS = 3
SOON_S = 60.0
DELAYED = ("worker/runs.py", "worker/session.py")
"""The files in whose functions threads are delayed: where runs begin and end."""


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> int:
    return 20_000 if request.config.getoption("--full") else 300


def write(args: Any) -> None:
    args.tensor(0)[:] = args.scalar(0)


def fail(args: Any) -> None:
    raise RuntimeError(f"the failure of run {args.scalar(0)}.")


@contextmanager
def delays(seed: int) -> Iterator[None]:
    """Delay new threads at random lines of DELAYED, and switch threads as often as possible."""
    chosen = random.Random(seed)

    def at_line(frame: FrameType, event: str, arg: Any) -> Any:
        if chosen.random() < 0.02:
            time.sleep(chosen.choice((0, 0, 1e-5, 2e-4)))
        return at_line

    def at_call(frame: FrameType, event: str, arg: Any) -> Any:
        return at_line if frame.f_code.co_filename.endswith(DELAYED) else None

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threading.settrace(at_call)
    try:
        yield
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
        sys.setswitchinterval(interval)


class StoppedRun:
    """A run on another thread that is stopped inside its graph function."""

    def __init__(self, worker: Worker) -> None:
        self.go_on = threading.Event()
        inside = threading.Event()

        def graph(orch: Any, args: Any, config: Any) -> None:
            self.orchestrator = orch
            inside.set()
            assert self.go_on.wait(SOON_S)

        self.call = CallInThread(lambda: worker.run(graph))
        assert inside.wait(SOON_S)

    def end(self) -> None:
        self.go_on.set()
        self.call.result()


@pytest.fixture
def worker(make: Any) -> Worker:
    made: Worker = make(num_sub_workers=1)
    made.init()
    return made


def no_tasks(orch: Any, args: Any, config: Any) -> None: ...


class User:
    """A thread that makes runs of each kind on a Worker that it shares."""

    def __init__(self, worker: Worker, number: int, seed: int, runs: int) -> None:
        self.worker, self.number, self.runs = worker, number, runs
        self.chosen = random.Random(seed + number)
        self.write, self.fail = worker.register(write), worker.register(fail)
        self.row = worker.shared_array(64, "int64")
        self.wrong: list[str] = []
        self.thread = threading.Thread(target=self.make_runs, daemon=True)

    def make_runs(self) -> None:
        for run in range(self.runs):
            self.make_run(self.number * 10_000_000 + run)

    def make_run(self, token: int) -> None:
        kind = self.chosen.choice((self.by_run, self.by_run, self.by_session, self.by_replay))
        fails = self.chosen.random() < 0.5
        handle = self.fail if fails else self.write
        self.row[:] = -1
        try:
            kind(given((self.row, TensorArgType.INOUT), scalars=(token,)), handle)
        except TaskFailedError as error:
            if not fails or f"run {token}." not in str(error):
                self.wrong.append(f"run {token} ({kind.__name__}, fails: {fails}) raised {error}")
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.wrong.append(f"run {token} ({kind.__name__}, fails: {fails}) raised {error!r}")
        else:
            if fails or not (self.row == token).all():
                self.wrong.append(
                    f"run {token} ({kind.__name__}, fails: {fails}) returned with {self.row[:3]}"
                )

    def by_run(self, args: Any, handle: Any) -> None:
        self.worker.run(lambda orch, _, config: orch.submit_sub(handle, args))

    def by_session(self, args: Any, handle: Any) -> None:
        with self.worker.session(hazards="raw") as session:
            session.orchestrator.submit_sub(handle, args)

    def by_replay(self, args: Any, handle: Any) -> None:
        graph = self.worker.capture(lambda orch, _, config: orch.submit_sub(handle, args))
        self.worker.replay(graph)


def test_runs_of_several_threads_are_never_mixed(make: Any, runs: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    worker = make(num_sub_workers=1)
    worker.init()
    users = [User(worker, number, seed, runs) for number in range(THREADS)]
    with delays(seed):
        for user in users:
            user.thread.start()
        for user in users:
            user.thread.join(SOON_S + runs / 10)
    wrong = [text for user in users for text in user.wrong]
    assert not any(user.thread.is_alive() for user in users)
    assert wrong == [], f"seed {seed}: {len(wrong)} of {THREADS * runs} runs, first {wrong[0]}"


@contextmanager
def stopped_at(number: int, stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at line `number` that the next thread executes in DELAYED; count its lines."""
    lines = [0]

    def at_line(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                stop()
        return at_line

    threading.settrace(
        lambda frame, *_: at_line if frame.f_code.co_filename.endswith(DELAYED) else None
    )
    try:
        yield lines
    finally:
        threading.settrace(None)  # type: ignore[arg-type]


# Invariant: Only the run of a failed task raises its error, even if other threads use the Worker.
def test_a_run_raises_its_own_error_wherever_another_thread_runs(worker: Worker) -> None:
    row, other = worker.shared_array((2, 8), "int64")
    handles = worker.register(write), worker.register(fail)

    def run(handle: Any, token: int, row: Any) -> None:
        args = given((row, TensorArgType.INOUT), scalars=(token,))
        worker.run(lambda orch, *_: orch.submit_sub(handle, args))

    last, number = 1, 0
    while number < last:
        number += 1
        others: list[CallInThread] = []

        def stop(token: int = number, others: list[CallInThread] = others) -> None:
            tracing = sys.gettrace()
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            others.append(CallInThread(lambda: run(handles[0], token, row)))
            others[0].await_blocked()  # or it has ended
            sys.settrace(tracing)

        with stopped_at(number, stop) as lines:
            failing = CallInThread(partial(run, handles[1], number, other))
            with pytest.raises(TaskFailedError, match=f"the failure of run {number}\\."):
                failing.result()
        others[0].result()
        assert (row == number).all()
        last = lines[0]
    assert last > 10


@pytest.mark.parametrize("kind", ["run", "session", "capture", "replay"])
def test_a_call_that_needs_the_worker_alone_waits_for_the_run_of_another_thread(
    worker: Worker, kind: str
) -> None:
    user = User(worker, 0, 0, 0)
    args = given((user.row, TensorArgType.INOUT), scalars=(7,))
    captured = worker.capture(no_tasks)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: worker.run(
            lambda orch, *_: orch.submit_sub(user.write, args), hazards="full"
        ),
        "session": lambda: worker.session(hazards="full").__enter__(),
        "capture": lambda: worker.capture(no_tasks),
        "replay": lambda: worker.replay(captured),
    }
    first = StoppedRun(worker)
    second = CallInThread(calls[kind])
    second.await_blocked()
    assert second.thread.is_alive()
    first.end()
    second.result()
    assert kind != "run" or (user.row == 7).all()


def test_threads_capture_in_the_order_of_their_calls(worker: Worker) -> None:
    order: list[int] = []
    first = StoppedRun(worker)
    others = []
    for number in range(4):

        def capture(number: int = number) -> None:
            worker.capture(lambda orch, args, config: order.append(number))

        others.append(CallInThread(capture))
        others[-1].await_blocked()
    first.end()
    for other in others:
        other.result()
    assert order == [0, 1, 2, 3]


def test_close_ends_the_wait_of_a_thread(worker: Worker) -> None:
    first = StoppedRun(worker)
    second = CallInThread(lambda: worker.capture(no_tasks))
    second.await_blocked()
    worker.close()
    with pytest.raises(WorkerClosedError):
        second.result()
    with pytest.raises(WorkerClosedError):
        first.end()


def test_ctrl_c_ends_the_wait_of_a_thread_and_no_run_of_another(worker: Worker) -> None:
    first = StoppedRun(worker)
    waiting = threading.main_thread().native_id

    def interrupt() -> None:
        await_blocked(waiting)
        signal.raise_signal(signal.SIGINT)

    interrupting = CallInThread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        worker.capture(no_tasks)
    interrupting.result()
    first.end()
    worker.capture(no_tasks)


def test_a_signal_handler_does_not_wait_for_the_wait_that_it_interrupts(worker: Worker) -> None:
    first = StoppedRun(worker)
    refused: list[UsageError] = []

    def handle(*ignored: Any) -> None:
        with pytest.raises(UsageError) as caught:
            worker.capture(no_tasks)
        refused.append(caught.value)
        first.go_on.set()

    def interrupt() -> None:
        await_blocked(threading.main_thread().native_id)
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        interrupting = CallInThread(interrupt)
        worker.capture(no_tasks)
    finally:
        signal.signal(signal.SIGUSR1, before)
    interrupting.result()
    first.end()
    assert "same Worker and thread" in str(refused[0])


# Invariant: A task belongs to the run of the object with which it was submitted.
def test_an_orchestrator_does_not_submit_to_a_later_run(worker: Worker) -> None:
    handle = worker.register(write)
    earlier = StoppedRun(worker)
    earlier.end()
    later = StoppedRun(worker)
    try:
        for call in (
            lambda: earlier.orchestrator.submit_sub(handle),
            lambda: earlier.orchestrator.alloc((4,), "int64"),
            lambda: earlier.orchestrator.scope().__enter__(),
        ):
            with pytest.raises(UsageError, match="outside its run"):
                call()
    finally:
        later.end()
    assert worker.statistics()["submitted"] == 0


def test_a_session_waits_for_a_thread_without_blocking_the_event_loop(worker: Worker) -> None:
    first = StoppedRun(worker)

    async def use() -> None:
        async def enter() -> None:
            async with worker.session(hazards="full"):
                pass

        cancelled = asyncio.ensure_future(enter())
        await asyncio.sleep(0)
        assert not cancelled.done()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        entering = asyncio.ensure_future(enter())
        await asyncio.sleep(0)
        first.go_on.set()
        await asyncio.wait_for(entering, SOON_S)

    asyncio.run(use())
    first.end()
    worker.run(no_tasks)
