"""Observers receive the events of a Worker: whole runs and children, and no task."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pto_core import Hosts, Worker, plugins
from pto_core.errors import ChildDiedError, TaskFailedError, UsageError, WorkerClosedError
from pto_core.plugins.hooks import Hooks, hookimpl


class Witness:
    """Keeps each event: the name of its hook without the prefix, and its arguments."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    @hookimpl
    def pto_worker_started(self, worker: Any, children: Any) -> None:
        self.events.append(("worker_started", worker.path, children))

    @hookimpl
    def pto_worker_closed(self, worker: Any) -> None:
        self.events.append(("worker_closed", worker.path))

    @hookimpl
    def pto_worker_run_started(self, worker: Any, run: Any) -> None:
        assert (worker.level, worker.process) == (int(worker.path[1]), os.getpid())
        self.events.append(("worker_run_started", run))

    @hookimpl
    def pto_worker_run_finished(self, run: Any, counts: Any, error: Any) -> None:
        kind = TaskFailedError if isinstance(error, TaskFailedError) else type(error)
        self.events.append(("worker_run_finished", run, dict(counts), kind))

    @hookimpl
    def pto_child_started(self, child: Any) -> None:
        self.events.append(("child_started", child))

    @hookimpl
    def pto_child_lost(self, child: Any, error: Any, restarts: Any) -> None:
        self.events.append(("child_lost", child, type(error), restarts))

    @hookimpl
    def pto_child_restarted(self, child: Any) -> None:
        self.events.append(("child_restarted", child))

    @hookimpl
    def pto_host_placed(self, child: Any, host: Any) -> None:
        self.events.append(("host_placed", child, host.partition("://")[0]))

    @hookimpl
    def pto_host_lost(self, child: Any, host: Any) -> None:
        self.events.append(("host_lost", child, host.partition("://")[0]))


@pytest.fixture
def events() -> Iterator[list[tuple[Any, ...]]]:
    witness = Witness()
    plugins.manager().register(witness)
    yield witness.events
    plugins.manager().unregister(witness)


def work() -> None:
    pass


def fail() -> None:
    raise ValueError("no")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def counts(submitted: int, finished: int, failed: int = 0, poisoned: int = 0) -> dict[str, int]:
    return {
        "submitted": submitted,
        "finished": finished,
        "failed": failed,
        "poisoned": poisoned,
    }


def test_a_worker_its_runs_and_its_end(events: list[Any]) -> None:
    with Worker(3, num_sub_workers=2) as worker:
        ok, bad = worker.register(work), worker.register(fail)
        worker.run(lambda orch, args, config: [orch.submit_sub(ok) for _ in range(5)])
        with pytest.raises(TaskFailedError):
            worker.run(lambda orch, args, config: orch.submit_sub(bad))
        with pytest.raises(ZeroDivisionError):
            worker.run(lambda orch, args, config: 1 // 0)
        with worker.session() as session:
            session.orchestrator.submit_sub(ok)
        captured = worker.capture(lambda orch, args, config: orch.submit_sub(ok))
        worker.replay(captured)
    nothing = type(None)
    assert events == [
        ("child_started", "L3/sub0"),
        ("child_started", "L3/sub1"),
        ("worker_started", "L3", ("L3/sub0", "L3/sub1")),
        ("worker_run_started", 1),
        ("worker_run_finished", 1, counts(5, 5), nothing),
        ("worker_run_started", 2),
        ("worker_run_finished", 2, counts(1, 1, failed=1), TaskFailedError),
        ("worker_run_started", 3),
        ("worker_run_finished", 3, counts(0, 0), ZeroDivisionError),
        ("worker_run_started", 4),
        ("worker_run_finished", 4, counts(1, 1), nothing),
        ("worker_run_started", 5),
        ("worker_run_finished", 5, counts(1, 1), nothing),
        ("worker_closed", "L3"),
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_child(events: list[Any], restarts: bool) -> None:
    policy = "restart" if restarts else "reroute"
    with Worker(3, num_sub_workers=1, on_worker_death=policy) as worker:
        ok, deadly = worker.register(work), worker.register(die)
        with pytest.raises(ChildDiedError):
            worker.run(lambda orch, args, config: orch.submit_sub(deadly))
        if restarts:
            worker.run(lambda orch, args, config: orch.submit_sub(ok))
    of_children = [event for event in events if event[0].startswith("child")]
    lost = ("child_lost", "L3/sub0", ChildDiedError, restarts)
    after = [("child_restarted", "L3/sub0")] if restarts else []
    assert of_children == [("child_started", "L3/sub0"), lost, *after]


def test_a_run_that_does_not_begin_and_a_capture_are_no_events(events: list[Any]) -> None:
    with Worker(3, num_sub_workers=1) as worker:
        ok = worker.register(work)
        worker.init()
        del events[:]
        with pytest.raises(UsageError):
            worker.replay(None)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            worker.run(lambda orch, args, config: None, hazards="none")
        worker.check(lambda orch, args, config: orch.submit_sub(ok))
        assert events == []
        with pytest.raises(UsageError):
            worker.run(lambda *_: worker.run(lambda *_: None, hazards="full"))
        assert [event[:2] for event in events] == [
            ("worker_run_started", 1),
            ("worker_run_finished", 1),
        ]


def test_a_worker_that_is_closed_in_its_run(events: list[Any]) -> None:
    worker = Worker(3, num_sub_workers=1)
    with pytest.raises(WorkerClosedError):
        worker.run(lambda orch, args, config: worker.close())
    assert sorted(event[0] for event in events[2:]) == [
        "worker_closed",
        "worker_run_finished",
        "worker_run_started",
    ]


def test_a_placed_host(events: list[Any]) -> None:
    with Worker(4, on_worker_death="restart") as worker:
        worker.add_worker(Worker(3, num_sub_workers=1, hosts=Hosts.on("local", num=1)))
        deadly = worker.register(kill_host)
        with pytest.raises(ChildDiedError):
            worker.run(lambda orch, args, config: orch.submit_next_level(deadly))
        worker.run(lambda orch, args, config: None)
    kinds = [event[0] for event in events if not event[0].startswith("worker")]
    assert kinds[:4] == ["host_placed", "child_started", "child_lost", "host_lost"]
    hosts = {event[1:] for event in events if event[0].startswith("host")}
    assert hosts == {("L4/host0", "tcp")}


def kill_host(orch: Any, args: Any, config: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_observer_that_raises_changes_no_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Angry:
        @hookimpl
        def pto_worker_run_started(self) -> None:
            raise OSError("full")

        @hookimpl
        def pto_child_lost(self) -> None:
            raise OSError("full")

    witness, angry = Witness(), Angry()
    manager = plugins.manager()
    manager.register(angry, "observer:angry")
    manager.register(witness)
    try:
        with Worker(3, num_sub_workers=1, on_worker_death="restart") as worker:
            ok, deadly = worker.register(work), worker.register(die)
            worker.run(lambda orch, args, config: orch.submit_sub(ok))
            with pytest.raises(ChildDiedError):
                worker.run(lambda orch, args, config: orch.submit_sub(deadly))
            worker.run(lambda orch, args, config: orch.submit_sub(ok))
    finally:
        manager.unregister(angry)
        manager.unregister(witness)
    names = [event[0] for event in witness.events]
    assert names.count("worker_run_finished") == 3
    assert "child_restarted" in names
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 4
    assert all("observer:angry" in line and "OSError: full" in line for line in warnings)


def test_each_hook_of_a_worker_is_tested_here() -> None:
    prefixes = ("pto_worker", "pto_child", "pto_host")
    hooks = {name for name in vars(Hooks) if name.startswith(prefixes)}
    assert hooks == {name for name in vars(Witness) if name.startswith("pto_")}
