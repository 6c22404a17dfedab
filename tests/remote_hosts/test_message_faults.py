"""Faults at each message of a run: each task runs once, and the result equals a local child's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network import NAME, Network
from remote_hosts import Agent, counted, running_agent, task_args, write_line

from pto_core import DataType, Worker

TASKS = 4
# LARGE tensors travel in pieces of up to 1 MiB, SMALL ones in the messages of their tasks
SMALL, LARGE = 100, 300_000
LEAST_MESSAGES = 8
LEASE_S = 6  # seconds; a lost greeting is repeated after a tenth of it


class Program:
    """A chain of tasks on a remote and a local child; each start of a task appends a line."""

    def __init__(self, worker: Worker, remote: Worker, log: Path) -> None:
        self.worker, self.log = worker, log
        self.runs = 0

        def step(orch: Any, args: Any, config: Any) -> None:
            write_line(log, f"{args.scalar(0)} ")
            args.tensor(1)[:] = args.tensor(0) * 3 + args.scalar(0)

        self.step = worker.register(step)
        self.remote = worker.add_worker(remote)
        self.local = worker.add_worker(Worker(level=3, num_sub_workers=0))
        self.x, self.y = counted(worker, LARGE), counted(worker, LARGE)

    def result_on(self, child: int) -> np.ndarray[Any, Any]:
        """Run the chain on one child; check that each task started once, and return the result."""
        self.log.write_text("")
        self.x[:] = np.arange(LARGE) + self.runs
        small = self.y[:SMALL]
        small[:] = 0

        def graph(orch: Any, args: Any, config: Any) -> None:
            middle = orch.alloc(self.x.shape, DataType.FLOAT32)
            part = orch.alloc((SMALL,), DataType.FLOAT32)
            chain = [(self.x, middle), (middle, self.y), (self.x[:SMALL], part), (part, small)]
            for number, (source, target) in enumerate(chain):
                made = task_args(source, target)
                made.add_scalar(number)
                orch.submit_next_level(self.step, made, worker=child)

        self.worker.run(graph, hazards="full")
        starts = Counter(self.log.read_text().split())
        assert starts == {str(number): 1 for number in range(TASKS)}
        return self.y.copy()

    def compare(self) -> None:
        """Require that both children have the same result."""
        self.runs += 1
        there, here = self.result_on(self.remote), self.result_on(self.local)
        assert np.array_equal(there, here)


@contextmanager
def program(agent: Agent, log: Path) -> Iterator[Program]:
    with Worker(level=4) as worker:
        remote = agent.worker(num_sub_workers=0, remote_transport=NAME, remote_lease_s=LEASE_S)
        made = Program(worker, remote, log)
        worker.init()
        yield made


@pytest.fixture
def plain_agent(tmp_path: Path) -> Iterator[Agent]:
    """Run an agent without keys, so that the network can see the boundaries of messages."""
    with running_agent(tmp_path, "zmq", None) as made:
        yield made


@pytest.mark.parametrize("kind", ["reset", "cut", "delay", "duplicate"])
def test_a_fault_at_each_message_of_a_run(
    kind: str, plain_agent: Agent, network: Network, tmp_path: Path
) -> None:
    with program(plain_agent, tmp_path / "tasks.log") as made:
        made.compare()
        message, applied = 0, True
        while applied or message < LEAST_MESSAGES:
            message += 1
            before = network.counts()["faults"]
            network.fault_at(message, kind)
            made.compare()
            applied = network.counts()["faults"] > before
            assert applied or message > LEAST_MESSAGES
            print(f"message {message}, applied: {applied}")


@pytest.mark.parametrize("kind", ["reset", "duplicate"])
def test_a_fault_at_each_message_of_a_start(
    kind: str, plain_agent: Agent, network: Network, tmp_path: Path
) -> None:
    """The faults hit the requests to the agent and the greetings of the session."""
    message, applied = 0, True
    while applied or message < LEAST_MESSAGES:
        message += 1
        before = network.counts()["faults"]
        network.fault_at(message, kind)
        with program(plain_agent, tmp_path / "tasks.log") as made:
            applied = network.counts()["faults"] > before
            made.compare()
        print(f"message {message}, applied: {applied}")
