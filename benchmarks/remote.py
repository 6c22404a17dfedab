"""Figures of a Worker on another host beside the same Worker as a local child.

The agent runs on this machine, over the link ``zmq`` on the loopback interface. The bare
counterparts of the link alone are in the group ``links``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile
from pto_core import TaskArgs, TensorArgType, Worker, plugins
from pto_core.remote.keys import new_keys

TRIPS = 500
TASKS = 5000
BYTES = 64 << 20
START_BUDGET_S = 0.7
RATE_BUDGET = 50_000.0


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure starts, trips, rates and copies, with and without CURVE."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        new_keys(keys, plugins.load_link("zmq"))
        for given, suffix in ((None, "without keys"), (keys, "with CURVE")):
            with _agent(given) as address:
                yield _start(effort, address, given, suffix)
                with _Pair.open(address, given) as pair:
                    yield from _tasks(effort, pair, suffix)
                    yield from _copies(effort, pair, suffix)


def _start(effort: Effort, address: str, keys: Path | None, suffix: str) -> Figure:
    def measure() -> float:
        worker = Worker(level=4)
        worker.add_worker(Worker(level=3, num_sub_workers=2, host=address, keys=keys))
        begin = time.perf_counter()
        worker.init()
        taken = time.perf_counter() - begin
        worker.close()
        return taken

    samples = [measure() for _ in range(effort.repeats)]
    return Figure(f"remote, start with two SUB children, {suffix}", "s", samples, START_BUDGET_S)


def _tasks(effort: Effort, pair: _Pair, suffix: str) -> Iterator[Figure]:
    trips, tasks = effort.size(TRIPS), effort.size(TASKS)
    taken = interleaved(
        {
            "far trip": lambda: pair.trip_us(pair.far, trips),
            "near trip": lambda: pair.trip_us(pair.near, trips),
            "far rate": lambda: pair.rate(pair.far, tasks),
            "near rate": lambda: pair.rate(pair.near, tasks),
        },
        effort.repeats,
    )
    yield Figure(
        f"remote, round trip of an empty task, {suffix}",
        "us",
        taken["far trip"],
        peer_name="local child",
        peer=taken["near trip"],
    )
    yield Figure(
        f"remote, empty tasks, {suffix}",
        "1/s",
        taken["far rate"],
        RATE_BUDGET,
        at_least=True,
        peer_name="local child",
        peer=taken["near rate"],
    )


def _copies(effort: Effort, pair: _Pair, suffix: str) -> Iterator[Figure]:
    pair.push()  # first touch
    taken = interleaved(
        {"changed": pair.push_changed, "unchanged": pair.push, "read": pair.read}, effort.repeats
    )
    rates = [BYTES / seconds / 1e9 for seconds in taken["changed"]]
    yield Figure(f"remote, changed input of 64 MiB, {suffix}", "GB/s", rates)
    yield Figure(
        f"remote, unchanged input of 64 MiB, {suffix}",
        "ms",
        [seconds * 1e3 for seconds in taken["unchanged"]],
        peer_name="one read pass",
        peer=[seconds * 1e3 for seconds in taken["read"]],
    )


def _nothing(orch: Any, args: Any, config: Any) -> None:
    pass


@dataclass
class _Pair:
    """A Worker with a remote and a local child, and an array for both."""

    worker: Worker
    step: Any
    far: int
    near: int
    array: Any

    @classmethod
    @contextmanager
    def open(cls, address: str, keys: Path | None) -> Iterator[_Pair]:
        """Start both children, without children of their own."""
        with Worker(level=4) as worker:
            step = worker.register(_nothing)
            far = worker.add_worker(Worker(level=3, host=address, keys=keys))
            near = worker.add_worker(Worker(level=3))
            array = worker.shared_array((BYTES,), "uint8")
            array[:] = 1
            worker.init()
            yield cls(worker, step, far, near, array)

    def trip_us(self, child: int, count: int) -> float:
        """Return the median time of a run with one task."""

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(self.step, worker=child)

        times = [self._seconds(graph) for _ in range(count)]
        return percentile(times, 50) * 1e6

    def rate(self, child: int, count: int) -> float:
        """Return the tasks in a second of a run with ``count`` tasks."""

        def graph(orch: Any, args: Any, config: Any) -> None:
            for _ in range(count):
                orch.submit_next_level(self.step, worker=child)

        return count / self._seconds(graph)

    def push(self) -> float:
        """Return the seconds of a remote task that reads the array."""

        def graph(orch: Any, args: Any, config: Any) -> None:
            made = TaskArgs()
            made.add_tensor(self.array, TensorArgType.INPUT)
            orch.submit_next_level(self.step, made, worker=self.far)

        return self._seconds(graph)

    def push_changed(self) -> float:
        """Change every byte, then measure :meth:`push`."""
        self.array += 1
        return self.push()

    def read(self) -> float:
        """Return the seconds of one pass over the array."""
        words = self.array.view(np.uint64)
        begin = time.perf_counter()
        np.bitwise_xor.reduce(words)
        return time.perf_counter() - begin

    def _seconds(self, graph: Callable[..., None]) -> float:
        begin = time.perf_counter()
        self.worker.run(graph)
        return time.perf_counter() - begin


@contextmanager
def _agent(keys: Path | None) -> Iterator[str]:
    command = [sys.executable, "-m", "pto_core.cli", "agent", "serve", "--bind"]
    options = ["tcp://127.0.0.1:0", *(["--keys", str(keys)] if keys else [])]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"serving at (\S+)", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(30)
