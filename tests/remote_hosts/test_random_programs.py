"""Random programs on local and remote children together have the sequential result.

The programs are those of the kill tests: rows of a shared array, allocations in scopes, groups,
explicit dependencies, pins, hints, retries, and tasks that fail.
"""

from __future__ import annotations

import contextlib
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest
from kill_graphs import ARRAYS, HEAP_RINGS, WORDS, Children, Generator
from kill_talk import Talk
from remote_hosts import Agent
from remote_kill_workers import Place, RemoteShape, RemoteTrial, worker_of

PROGRAMS = 10


class Quiet(Talk):
    """A :class:`Talk` without an observer, so that no process is killed."""

    def __init__(self) -> None:
        pass

    def kills(self, phase: str) -> contextlib.AbstractContextManager[Counter[str]]:
        return contextlib.nullcontext(Counter())


@pytest.mark.parametrize("are_remote", [[True, False], [True, True, False]], ids=["two", "three"])
def test_random_programs_have_the_sequential_result(
    agent: Agent, tmp_path: Path, are_remote: list[bool]
) -> None:
    seed = secrets.randbits(31)
    print("seed", seed)
    chosen = random.Random(seed)
    settings = {
        "heap_ring_size": chosen.choice(HEAP_RINGS),
        "child_window": chosen.choice([1, 2, 8, 64]),
    }
    shape = RemoteShape(are_remote, 1, settings, PROGRAMS)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "tasks.log"
    worker, handles = worker_of(shape, Place(agent.address, str(agent.keys), "zmq", ""), log)
    with worker:
        memory = worker.shared_array((ARRAYS, WORDS), "int64")
        controls = 0
        for _ in range(PROGRAMS):
            program = Generator(chosen, Children(len(are_remote), 1, are_chips=False)).make()
            trial = RemoteTrial(program, worker, handles, memory, shape.limits, log)
            outcome = trial.run(Quiet())
            assert list(trial.faults(outcome)) == []
            memory += 1
            controls += any(fault.startswith("array") for fault in trial.faults(outcome))
        assert controls  # the check finds wrong results, except when failed tasks wrote all arrays
