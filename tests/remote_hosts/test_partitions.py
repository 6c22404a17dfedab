"""Networks that are down for less and for more than the lease.

Each test runs over proxies, and, where the machine permits them, between hosts in namespaces.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import namespaces
import numpy as np
import psutil
import pytest
from namespaces import running_host, running_host_agent
from network import NAME, Network
from remote_hosts import Agent, counted, is_running, task_args, wait_until, write_line

from pto_core import DataType, TensorArgType, Worker

LEASE_S = 1.5
INOUT = TensorArgType.INOUT


@dataclass(frozen=True)
class Line:
    """An agent, and a connection to it that a test can interrupt."""

    agent: Agent
    settings: dict[str, Any]
    interrupt: Callable[[bool], None]

    def worker(self) -> Worker:
        settings = {"num_sub_workers": 0, "remote_lease_s": LEASE_S, **self.settings}
        return self.agent.worker(**settings)


@pytest.fixture(params=["proxies", "namespaces"])
def line(request: pytest.FixtureRequest, keys: Path, tmp_path: Path) -> Iterator[Line]:
    if request.param == "proxies":
        network: Network = request.getfixturevalue("network")
        agent: Agent = request.getfixturevalue("agent")
        settings = {"remote_transport": NAME, "keys": request.getfixturevalue("networked_keys")}
        yield Line(agent, settings, network.stall)
        return
    require_namespaces()
    with running_host(0) as host, running_host_agent(host, tmp_path / "host", keys) as agent:
        yield Line(agent, {}, lambda is_down: host.set_link(is_up=not is_down))


def require_namespaces() -> None:
    """Report the test as not run if the machine does not permit namespaces.

    This is not a skip, which `.ci/run` refuses, because no change of the checkout can permit them.
    """
    reason = namespaces.missing_permission()
    if reason:
        pytest.xfail(f"not run: this machine permits no namespaces: {reason}")


def add_one(args: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) + 1


def namespaces_of_this_process() -> list[int]:
    return [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("net", "mnt", "ipc", "pid")]


def adding(leaf: Any) -> Callable[..., None]:
    """Return a graph function that also writes the namespaces of its process."""

    def on_host(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(leaf, task_args(args.tensor(0), args.tensor(1)))
        args.tensor(2)[:] = namespaces_of_this_process()

    return on_host


def test_two_hosts_in_namespaces_of_their_own_add_vectors(keys: Path, tmp_path: Path) -> None:
    require_namespaces()

    with ExitStack() as stack:
        hosts = [stack.enter_context(running_host(number)) for number in range(2)]
        agents = [
            stack.enter_context(running_host_agent(host, tmp_path / str(number), keys))
            for number, host in enumerate(hosts)
        ]
        worker = stack.enter_context(Worker(level=4))
        steps, children = [], []
        for agent in agents:
            remote = agent.worker(num_sub_workers=1)
            steps.append(worker.register(adding(remote.register(add_one))))
            children.append(worker.add_worker(remote))
        x, y = (worker.shared_array((2, 1 << 19)) for _ in range(2))
        seen = worker.shared_array((2, 4), "int64")
        x[:] = np.arange(1 << 20).reshape(2, -1)

        def graph(orch: Any, args: Any, config: Any) -> None:
            for row, (step, child) in enumerate(zip(steps, children, strict=True)):
                made = task_args(x[row], y[row])
                made.add_tensor(seen[row], TensorArgType.OUTPUT_EXISTING)
                orch.submit_next_level(step, made, worker=child)

        worker.run(graph)
        assert np.array_equal(y, x + 1)
        for mine, first, second in zip(namespaces_of_this_process(), *seen.tolist(), strict=True):
            assert len({mine, first, second}) == 3


def test_a_cut_shorter_than_the_lease_loses_and_repeats_nothing(line: Line, tmp_path: Path) -> None:
    steps, shown = 30, 0
    log = tmp_path / "tasks.log"
    log.touch()

    def step(orch: Any, args: Any, config: Any) -> None:
        write_line(log, f"{args.scalar(0)} ")
        args.tensor(1)[:] = args.tensor(0) + 1
        time.sleep(0.01)

    with Worker(level=4) as worker:
        added, there = worker.register(step), worker.add_worker(line.worker())
        x, y = counted(worker, 20_000), counted(worker, 20_000)
        worker.init()
        processes = set(line.agent.processes())

        def graph(orch: Any, args: Any, config: Any) -> None:
            last = x
            for number in range(steps):
                following = y if number == steps - 1 else orch.alloc(x.shape, DataType.FLOAT32)
                made = task_args(last, following)
                made.add_scalar(number)
                orch.submit_next_level(added, made, worker=there)
                last = following
            wait_until(lambda: len(log.read_text().split()) > shown)
            line.interrupt(True)
            time.sleep(LEASE_S / 2)
            line.interrupt(False)

        for _ in range(2):
            y[:] = 0
            worker.run(graph)
            assert np.array_equal(y, x + steps)
            shown += steps
        assert Counter(log.read_text().split()) == {str(number): 2 for number in range(steps)}
        assert set(line.agent.processes()) == processes
        assert worker.statistics()["deaths"] == 0


# Invariant: A task of a lost session runs elsewhere only after all processes of the session have
# ended.
@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_a_task_is_rerouted_after_the_old_session_has_ended(
    line: Line, tmp_path: Path, ends_meanwhile: bool
) -> None:
    """The first attempt runs or ends while the network is down. It writes 1, the second adds 2."""
    parent, begun, may_end = os.getpid(), tmp_path / "begun", tmp_path / "may_end"

    def step(orch: Any, args: Any, config: Any) -> None:
        y = args.tensor(0)
        if os.getppid() != parent:
            y[:] = 1
            begun.touch()
            until = time.monotonic() + 60
            while not (ends_meanwhile and may_end.exists()) and time.monotonic() < until:
                time.sleep(0.001)
        else:
            y[:] += 2
            pids = map(int, (tmp_path / "old").read_text().split())
            left = [
                pid for pid in pids if psutil.pid_exists(pid) and is_running(psutil.Process(pid))
            ]
            (tmp_path / "left").write_text(str(left))

    with Worker(level=4, on_worker_death="reroute") as worker:
        added = worker.register(step)
        worker.add_worker(line.worker())
        worker.add_worker(Worker(level=3, num_sub_workers=0))
        y = counted(worker, 100_000)
        y[:] = 40
        worker.init()
        old = line.agent.processes()
        assert old
        (tmp_path / "old").write_text(" ".join(str(one.pid) for one in old))

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(added, task_args(y, out=INOUT), worker=0, hint=True, retries=1)
            wait_until(begun.exists)
            line.interrupt(True)
            may_end.touch()

        begin = time.monotonic()
        worker.run(graph)
        taken_s = time.monotonic() - begin
        line.interrupt(False)
        assert (tmp_path / "left").read_text() == "[]"
        assert taken_s > LEASE_S
        time.sleep(0.2)  # time for late completions, which the restored network delivers
        assert (y == 42).all()
        assert worker.statistics()["deaths"] == 1
    line.agent.await_no_session()
