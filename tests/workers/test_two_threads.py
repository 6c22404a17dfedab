"""Pairs of calls on two threads: each call has its documented effect or error.

The first call is stopped midway, where it runs code of the program or waits for a child. Meanwhile
the second call runs to its end, or until it waits for the first call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from task_arguments import given
from thread_states import CallInThread

from pto_core import CallableHandle, InOut, TaskArgs, TensorArgType, Worker, task
from pto_core.errors import UsageError, WorkerClosedError

SOON_S = 60.0
SAMPLES = 30
"""The number of samples of a thread. A call that waits for a child is awake in some of them."""
CHILDREN = 2


def add_one(args: Any) -> None:
    args.tensor(0)[:] += 1


def add_again(args: Any) -> None:
    args.tensor(0)[:] += 1


@task
def add_typed(x: InOut) -> None:
    x += 1


def graph_below(orch: Any, args: Any, config: Any) -> None:
    """Runs in the process of a child Worker."""


def await_path(path: Path) -> None:
    until = time.monotonic() + SOON_S
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.001)


class Gate:
    """The place at which a call is stopped, in this process or in a child."""

    def __init__(self, folder: Path) -> None:
        self.reached, self.opened = folder / "reached", folder / "opened"

    def __call__(self, *ignored: Any) -> None:
        self.reached.touch()
        await_path(self.opened)


def pass_gate(args: Any) -> None:
    """Stop this task, which runs in a child."""
    row = args.tensor(0)
    Gate(Path(bytes(row[row != 0]).decode()))()


class InParent:
    """A callable that stops the parent while the parent serialises it, before any child has it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __reduce__(self) -> Any:
        self._gate()
        return import_add_one, ()

    def __call__(self, args: Any) -> None:
        add_one(args)


class InChild:
    """A callable that stops the first child that receives it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __reduce__(self) -> Any:
        return stopped_add_one, (self._gate,)

    def __call__(self, args: Any) -> None:
        add_one(args)


class Forgotten:
    """A callable that stops a child while the child removes it."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._process = gate, os.getpid()

    def __reduce__(self) -> Any:
        return Forgotten, (self._gate,)

    def __call__(self, args: Any) -> None: ...

    def __del__(self) -> None:
        if os.getpid() == self._process and is_in_child():
            self._gate()


_test_process = os.getpid()


def is_in_child() -> bool:
    return os.getpid() != _test_process


def import_add_one() -> Any:
    return add_one


def stopped_add_one(gate: Gate) -> Any:
    gate()
    return add_one


class Shape(Sequence[int]):
    """A shape that stops the thread that reads it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        self._gate()
        return (8,)[index]


class Forks:
    """Functions that stop this process before a fork, or its children after their fork."""

    before: Callable[[], None] | None = None
    in_child: Callable[[], None] | None = None


os.register_at_fork(
    before=lambda: Forks.before() if Forks.before else None,
    after_in_child=lambda: Forks.in_child() if Forks.in_child else None,
)


@pytest.fixture(autouse=True)
def no_forks_are_stopped() -> Iterator[None]:
    yield
    Forks.before = Forks.in_child = None


class World:
    """A Worker, the objects that its calls need, and the results of the calls."""

    def __init__(self, make: Any, folder: Path, *, is_running: bool) -> None:
        self.gate = Gate(folder)
        self.make = make
        self.worker: Worker = make(level=4, num_sub_workers=CHILDREN)
        self.x = self.worker.shared_array(8)
        self.path = self.worker.shared_array(512, "uint8")
        name = os.fsencode(folder)
        self.path[: len(name)] = list(name)
        self.known = self.worker.register(add_one)
        self.waiting = self.worker.register(pass_gate)
        self.spare = self.worker.register("time:sleep")
        self.captured: Any = None
        self.forgotten: Any = None
        if is_running:
            self.worker.init()
            self.forgotten = self.worker.register(Forgotten(self.gate), serialise=True)
            self.captured = self.worker.capture(self.submit_waiting)

    def submit(self, orch: Any, handle: CallableHandle, value: Any) -> None:
        orch.submit_sub(handle, given((value, TensorArgType.INOUT)))

    def submit_waiting(self, orch: Any, args: Any, config: Any) -> None:
        self.submit(orch, self.waiting, self.path)

    # ---- calls that are stopped midway ----

    def init_at_fork(self) -> Any:
        Forks.before = self.gate
        return self.worker.init()

    def init_at_start_of_child(self) -> Any:
        Forks.in_child = self.gate
        return self.worker.init()

    def register_in_parent(self) -> Any:
        return self.worker.register(InParent(self.gate), serialise=True)

    def register_in_child(self) -> Any:
        return self.worker.register(InChild(self.gate), serialise=True)

    def unregister_in_child(self) -> Any:
        return self.worker.unregister(self.forgotten)

    def shared_array_inside(self) -> Any:
        return self.worker.shared_array(Shape(self.gate))

    def session_inside(self) -> Any:
        with self.worker.session() as session:
            self.gate()
            session.submit(add_typed, self.x)
        return self.x

    def run_inside(self) -> Any:
        def graph(orch: Any, args: Any, config: Any) -> None:
            self.gate()
            self.submit(orch, self.known, self.x)

        self.worker.run(graph)
        return self.x

    def capture_inside(self) -> Any:
        def graph(orch: Any, args: Any, config: Any) -> None:
            self.gate()
            self.submit(orch, self.known, self.x)

        return self.worker.capture(graph)

    def replay_inside(self) -> Any:
        return self.worker.replay(self.captured)

    def close_inside(self) -> None:
        """Close with stopped children, so that they do not end before the gate opens."""
        children = psutil.Process().children()
        for child in children:
            child.suspend()
        closing = threading.Thread(target=self.close, daemon=True)
        closing.start()
        while repr(self.worker) != "<Worker L4, closing>":
            time.sleep(0.001)
        self.gate()
        for child in children:
            if child.is_running():
                child.resume()
        closing.join(SOON_S)
        self.close()

    # ---- calls that are made meanwhile ----

    def init(self) -> Any:
        return self.worker.init()

    def register(self) -> Any:
        return self.worker.register(add_again)

    def register_path(self) -> Any:
        return self.worker.register(f"{__name__}:add_one")

    def register_serialised(self) -> Any:
        return self.worker.register(lambda args: add_one(args), serialise=True)

    def unregister(self) -> Any:
        return self.worker.unregister(self.spare)

    def add_worker(self) -> int:
        return self.worker.add_worker(self.make(num_sub_workers=1))

    def shared_array(self) -> Any:
        return self.worker.shared_array(8)

    def session(self) -> Any:
        with self.worker.session() as session:
            session.submit(add_typed, self.x)
        return self.x

    def run(self) -> Any:
        self.worker.run(lambda orch, args, config: self.submit(orch, self.known, self.x))
        return self.x

    def capture(self) -> Any:
        return self.worker.capture(lambda orch, args, config: self.submit(orch, self.known, self.x))

    def replay(self) -> Any:
        if self.captured is None:
            raise UsageError("there is no graph yet")
        return self.worker.replay(self.captured)

    def statistics(self) -> Any:
        return self.worker.statistics()

    def malloc(self) -> Any:
        return self.worker.malloc(64)

    def close(self) -> None:
        self.worker.close()
        assert psutil.Process().children() == []

    # ---- the promises ----

    def check(self, calls: Sequence[Call]) -> None:
        errors = [call.error for call in calls if call.error is not None]
        for error in errors:
            assert isinstance(error, UsageError | WorkerClosedError), repr(error)
        assert len(errors) < len(calls)
        if any("close" in call.name for call in calls):
            self.check_closed()
            return
        assert not any(isinstance(error, WorkerClosedError) for error in errors)
        expected = 0
        for call in calls:
            if call.error is None:
                expected += call.value is self.x
                self.check_result(call.name, call.value)
        assert (self.x == expected).all()
        self.worker.run(lambda orch, args, config: self.submit(orch, self.known, self.x))
        assert (self.x == expected + 1).all()

    def check_closed(self) -> None:
        assert repr(self.worker) == "<Worker L4, closed>"
        for call in (self.init, self.run, self.register, self.statistics, self.shared_array):
            with pytest.raises(WorkerClosedError):
                call()

    def check_result(self, name: str, value: Any) -> None:
        if name.startswith("init"):
            assert "running" in repr(self.worker)
        if isinstance(value, CallableHandle):
            self.check_everywhere(value, self.worker.shared_array((CHILDREN, 8)))
        elif name.startswith("shared_array"):
            self.check_everywhere(self.known, value.reshape(CHILDREN, -1))
        elif name.startswith("capture"):
            before = self.x[0]
            self.worker.replay(value)
            assert (self.x == before + 1).all()
            self.x[:] = before
        elif name == "add_worker":
            graph = self.worker.register(graph_below)
            self.worker.run(
                lambda orch, args, config: orch.submit_next_level(
                    graph, TaskArgs(), config, worker=value
                )
            )

    def check_everywhere(self, handle: CallableHandle, rows: Any) -> None:
        """Run a function in all children at once, and check its effect."""
        rows[:] = 0
        self.worker.run(
            lambda orch, args, config: orch.submit_sub_group(
                handle,
                [given((row, TensorArgType.INOUT)) for row in rows],
                workers=list(range(CHILDREN)),
            )
        )
        assert (rows == 1).all()


class Call(CallInThread):
    """A call of a method of the world on a separate thread."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        super().__init__(getattr(world, name))


STOPPED_NEW = [
    "init_at_fork",
    "init_at_start_of_child",
    "register_in_parent",
    "shared_array_inside",
    "session_inside",
    "run_inside",
    "capture_inside",
]
STOPPED_RUNNING = [
    "register_in_parent",
    "register_in_child",
    "unregister_in_child",
    "shared_array_inside",
    "session_inside",
    "run_inside",
    "capture_inside",
    "replay_inside",
    "close_inside",
]
MEANWHILE = [
    "init",
    "register",
    "register_path",
    "register_serialised",
    "unregister",
    "add_worker",
    "shared_array",
    "session",
    "run",
    "capture",
    "replay",
    "statistics",
    "malloc",
    "close",
]


def walk(world: World, stopped: str, meanwhile: str) -> None:
    first = Call(world, stopped)
    await_path(world.gate.reached)
    assert world.gate.reached.exists()
    Forks.before = None
    second = Call(world, meanwhile)
    second.await_blocked(SAMPLES)
    world.gate.opened.touch()
    first.await_end()
    second.await_end()
    Forks.in_child = None
    world.check([first, second])


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("stopped", STOPPED_NEW)
def test_two_calls_on_a_new_worker(make: Any, tmp_path: Path, stopped: str, meanwhile: str) -> None:
    walk(World(make, tmp_path, is_running=False), stopped, meanwhile)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("stopped", STOPPED_RUNNING)
def test_two_calls_on_a_running_worker(
    make: Any, tmp_path: Path, stopped: str, meanwhile: str
) -> None:
    walk(World(make, tmp_path, is_running=True), stopped, meanwhile)
