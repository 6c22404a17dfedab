"""The placement policy near_inputs, with four hosts, and the bytes that travel."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import counting_link
import numpy as np
import pytest
from remote_hosts import task_args

from pto_core import Hosts, Worker
from pto_core.interfaces import Candidate, PlacedTask

HOSTS = 4


class NearInputs:
    """The rules of the policy near_inputs, as a policy of a program."""

    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        def cost(each: Candidate) -> tuple[int, int, int]:
            missing = task.input_bytes - each.held_bytes
            return each.in_flight + min(missing >> 24, 2), each.in_flight, missing

        return min(candidates, key=cost).child


ROWS = 2 << 20  # bytes of each array


def sum_beside(folder: Path, count: int) -> Callable[..., None]:
    """Return a function that sums an array when ``count`` tasks of its run are running."""

    def step(orch: Any, args: Any, config: Any) -> None:
        import time

        run, out = args.tensor(1)[0], args.tensor(2)
        Path(folder, f"{run}-{args.scalar(0)}").touch()
        while len(list(Path(folder).glob(f"{run}-*"))) < count:
            time.sleep(0.005)
        out[:] = args.tensor(0).sum(), os.getpid()

    return step


class Program:
    """Runs of one task for each of several arrays, in a random order."""

    def __init__(self, worker: Worker, folder: Path, log: Path) -> None:
        worker.add_worker(
            Worker(
                level=3,
                hosts=Hosts.on("local", num=HOSTS),
                remote_transport=counting_link.NAME,
            )
        )
        self.worker = worker
        self.step = worker.register(sum_beside(folder, HOSTS))
        self.arrays = [worker.shared_array((ROWS,), "uint8") for _ in range(HOSTS)]
        for index, array in enumerate(self.arrays):
            array[:] = index + 1
        self.run_number = worker.shared_array((1,), "int64")
        self.out = worker.shared_array((HOSTS, 2), "int64")
        self.log = log

    def run(self, order: list[int]) -> tuple[list[int], int]:
        """Return the process of each array's task, and the bytes that were sent."""
        begin = sum_of(self.log)
        self.run_number += 1

        def graph(orch: Any, args: Any, config: Any) -> None:
            for index in order:
                given = task_args(self.arrays[index], self.run_number, self.out[index])
                given.add_scalar(index)
                orch.submit_next_level(self.step, given)

        self.worker.run(graph)
        assert [int(found) for found in self.out[:, 0]] == [
            int(array.sum(dtype=np.int64)) for array in self.arrays
        ]
        return [int(pid) for pid in self.out[:, 1]], sum_of(self.log) - begin


def sum_of(log: Path) -> int:
    """Return the bytes of all messages; sender and receiver have recorded each."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(json.loads(line)[1] for line in lines) // 2


@contextmanager
def program(
    policy: NearInputs | str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Program]:
    log = folder / "traffic"
    monkeypatch.setenv(counting_link.VARIABLE, str(log))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with Worker(level=4, policy=policy) as worker:
        yield Program(worker, folder, log)


# Invariant: With the policy near_inputs, tasks without a pin run again on the hosts that have their
# inputs, and idle hosts receive tasks.
@pytest.mark.parametrize("policy", [None, "least_loaded", NearInputs()])
def test_tasks_run_where_their_inputs_are(
    policy: NearInputs | str | None,
    counting: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a policy, a Worker with remote children uses near_inputs."""
    orders = [[3, 0, 2, 1], [1, 2, 3, 0], [2, 3, 0, 1], [0, 1, 2, 3]]
    with program(policy, tmp_path, monkeypatch) as made:
        found = [made.run(order) for order in orders]
        (first, _), *later = found
        assert len(set(first)) == HOSTS
        moved = sum(nbytes for _, nbytes in later)
        if policy == "least_loaded":
            assert moved > 4 * ROWS
            return
        assert all(pids == first for pids, _ in later)
        assert moved < ROWS / 4

        # What the program writes is sent to the host that had the array.
        made.arrays[2][:] = 9
        pids, nbytes = made.run(orders[0])
        assert pids == first
        assert ROWS <= nbytes < 1.25 * ROWS
