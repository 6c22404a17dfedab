"""Workers on other hosts join and leave a running Worker."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from remote_hosts import Agent, counted, is_running, on_sub, task_args, wait_until

from pto_core import RemoteCallable, Worker
from pto_core.errors import (
    BufferLostError,
    CapacityError,
    ChildDiedError,
    ChildStartError,
    PtoError,
    UsageError,
    WorkerClosedError,
)
from pto_core.worker.runs import GraphFunction


def write_pid(orch: Any, args: Any, config: Any) -> None:
    args.tensor(0)[:] = os.getpid()


def fill(orch: Any, args: Any, config: Any) -> None:
    args.tensor(0)[:] = 7


def plus_one(args: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) + 1


def open_file(file: Path) -> GraphFunction:
    def graph(orch: Any, args: Any, config: Any) -> None:
        Path(file).touch()
        args.tensor(0)[:] = os.getpid()

    return graph


def waiting_for(file: Path) -> GraphFunction:
    def graph(orch: Any, args: Any, config: Any) -> None:
        import time

        while not Path(file).exists():
            time.sleep(0.01)
        args.tensor(0)[:] = os.getpid()

    return graph


def pinned(step: Any, out: Any, *workers: int) -> GraphFunction:
    """Return a graph function with one task for each of the workers."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        for row, worker in enumerate(workers):
            orch.submit_next_level(step, task_args(out[row : row + 1]), worker=worker)

    return graph


def group_of(step: Any, out: Any, members: int) -> GraphFunction:
    def graph(orch: Any, args: Any, config: Any) -> None:
        parts = np.split(out, members)
        orch.submit_next_level_group(step, [task_args(part) for part in parts])

    return graph


# Invariant: A Worker that joins a running Worker runs all callables and captured graphs of that
# Worker. Its place receives no task before it is ready, and none after it has left.
def test_hosts_join_between_runs_and_inside_a_run_and_leave(agent: Agent, tmp_path: Path) -> None:
    first, second = agent.worker(num_sub_workers=1), agent.worker(num_sub_workers=0)
    step = on_sub(first.register(plus_one))
    begin, hold = open_file(tmp_path / "joined"), waiting_for(tmp_path / "joined")
    with Worker(level=4, spare_workers=2, num_sub_workers=1, child_window=1) as worker:
        pid, begin, hold = (worker.register(one) for one in (write_pid, begin, hold))
        x, y, out = counted(worker), worker.shared_array((1024,)), worker.shared_array((2, 64))
        with pytest.raises(UsageError, match="has 0 children now"):
            worker.run(pinned(pid, out, -1))

        # Between two runs, with callables from before and after the join.
        assert worker.add_worker(first) == 0
        step = worker.register(step)
        worker.run(lambda orch, *_: orch.submit_next_level(step, task_args(x, y), worker=0))
        assert (y == x + 1).all()
        captured = worker.capture(pinned(pid, out, -1))
        on_first = worker.capture(pinned(pid, out, 0))

        # Inside a run: the only child waits for a task that must go to the child that joins.
        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(hold, task_args(out[:1]), worker=0)
            orch.submit_next_level(begin, task_args(out[1:]))
            assert worker.add_worker(second) == 1

        worker.run(graph)
        assert out[0, 0] != out[1, 0]
        worker.run(group_of(pid, out, 2))
        both = set(out[:, 0])
        assert len(both) == 2
        with pytest.raises(
            CapacityError, match=r"2 places .* none is free; .* spare_workers, or rem"
        ):
            worker.add_worker(agent.worker())
        with pytest.raises(UsageError, match="without host= or hosts= was added after init"):
            worker.add_worker(Worker(level=3))
        assert not worker.statistics()["deaths"] + worker.statistics()["restarts"]

        def leaving(orch: Any, args: Any, config: Any) -> None:
            worker.remove_worker(0)

        with pytest.raises(UsageError, match="during a run"):
            worker.run(leaving)
        buffer = worker.remote_malloc(64, 0)
        worker.remove_worker(0)
        assert buffer.is_lost
        for graph in (pinned(pid, out, 0), group_of(pid, out, 2)):
            with pytest.raises(UsageError, match=r"has workers 1$|has 1 children now"):
                worker.run(graph)
        with pytest.raises(UsageError, match="pinned to worker 0, which was removed"):
            worker.replay(on_first)
        worker.replay(captured)
        assert out[0, 0] in both
        with pytest.raises(UsageError, match=r"worker 0 is not .* pass one of \[1\]"):
            worker.remove_worker(0)

        assert worker.add_worker(first) == 0
        worker.replay(on_first)
        assert out[0, 0] not in both


# Invariant: A join that fails or is interrupted leaves the Worker as before. The next Worker at a
# place sees no buffer and no callable of the last one.
def test_a_join_that_fails_leaves_the_place_free(agent: Agent) -> None:
    lock = threading.Lock()
    bad = agent.worker()
    bad.register(lambda args: lock)
    with Worker(level=4, spare_workers=1, on_worker_death="reroute") as worker:
        worker.init()
        with pytest.raises(UsageError, match="cannot be serialised"):
            worker.add_worker(bad)
        with pytest.raises(ChildStartError, match="nothing listens"):
            worker.add_worker(Worker(level=3, host="tcp://127.0.0.1:9", keys=agent.keys))
        good = agent.worker(num_sub_workers=0)
        assert worker.add_worker(good) == 0
        step = worker.register(RemoteCallable("os.path:join"), workers=[0])
        buffer = worker.remote_malloc(64, 0)
        worker.remove_worker(0)
        with pytest.raises(UsageError, match="is dead: it was unregistered"):
            worker.unregister(step)
        other = agent.worker(num_sub_workers=0)
        assert worker.add_worker(other) == 0
        fresh = worker.remote_malloc(64, 0)
        assert fresh.address != buffer.address
        with pytest.raises(BufferLostError):
            worker.remote_copy_to(buffer, bytes(64))

        # A child that does not return after its loss can be removed and added again.
        out, step = worker.shared_array((1,)), worker.register(fill)
        (relay,) = (one for one in psutil.Process().children() if one.pid != agent.process.pid)
        relay.kill()
        with pytest.raises(ChildDiedError):
            worker.run(pinned(step, out, 0))
        worker.remove_worker(0)
        assert worker.add_worker(other) == 0
        worker.run(pinned(step, out, 0))
        assert out[0] == 7


def test_a_worker_that_is_closed_ends_a_join(agent: Agent) -> None:
    worker = Worker(level=4, spare_workers=1).init()
    errors: list[PtoError] = []

    def join() -> None:
        try:
            worker.add_worker(Worker(level=3, host="tcp://127.0.0.1:9", keys=agent.keys))
        except PtoError as error:
            errors.append(error)

    thread = threading.Thread(target=join)
    thread.start()
    wait_until(lambda: len(psutil.Process().children()) == 2)  # the agent and the relay
    worker.close()
    thread.join()
    assert [type(error) for error in errors] == [WorkerClosedError]


# Invariant: Joins and leaves of other hosts leave no process, descriptor or memory.
def test_many_joins_leave_no_process_descriptor_or_memory(
    agent: Agent, pytestconfig: pytest.Config
) -> None:
    count = 100 if pytestconfig.getoption("full") else 4
    this = psutil.Process()
    seen, used = [], []
    with Worker(level=4, spare_workers=1) as worker:
        step = worker.register(fill)
        out = worker.shared_array((16,))
        remote = agent.worker(num_sub_workers=0)
        for _ in range(count):
            out[:] = 0
            assert worker.add_worker(remote) == 0
            worker.run(pinned(step, out, 0))
            assert out[0] == 7
            worker.remove_worker(0)
            gc.collect()
            agent.await_no_session()
            children = [one for one in this.children() if is_running(one)]
            seen.append((len(children), this.num_fds(), agent.server().num_fds()))
            used.append(this.memory_info().rss)
    assert set(seen[1:]) == {seen[-1]}, seen
    assert seen[-1][0] == 1  # the agent
    assert used[-1] - used[1] < 8 << 20, used
