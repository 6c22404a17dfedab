"""Measure a Worker on another host, and compare it with the same Worker as a local child.

The agent runs on this machine, over the link ``zmq`` on the loopback interface. Bare pyzmq is
measured too, as a lower bound. The benchmark group ``links`` compares the link alone with bare
pyzmq.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile
from benchmarks.links import bare
from pto_core import Worker
from pto_core.published import TaskArgs, TensorArgType
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys

TRIPS = 500
PARKED_TRIPS = 100
# After a pause of this length, every waiting process sleeps on its doorbell and no longer polls.
PAUSE_S = 0.002
TASKS = 20_000
SMALL_TASKS, SMALL_BYTES = 2000, 1024
WINDOW = 256  # tasks in flight to one child; with fewer, the latency limits the rate
MIB = 64
SESSIONS = 32
SESSION_TASKS = 20
START_BUDGET_S = 0.7
RATE_BUDGET = 50_000.0
_PEER = "bare pyzmq and two parked local children"


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure start times, round trips, task rates and copies, with and without CURVE keys."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        new_keys(keys, load_links("zmq"))
        for given, suffix in ((None, "without keys"), (keys, "with CURVE")):
            with _agent(given) as address:
                yield _start(effort, address, given, suffix)
                with _Pair.open(address, given, effort.size(MIB)) as pair:
                    yield from _tasks(effort, pair, suffix)
                    yield _small(effort, pair, suffix)
                    yield from _copies(effort, pair, suffix)
                yield _sessions(effort, address, given, suffix)


def _start(effort: Effort, address: str, keys: Path | None, suffix: str) -> Figure:
    def measure(**place: Any) -> float:
        worker = Worker(level=4)
        worker.add_worker(Worker(level=3, num_sub_workers=2, **place))
        begin = time.perf_counter()
        worker.init()
        taken = time.perf_counter() - begin
        worker.close()
        return taken

    taken = interleaved(
        {"far": lambda: measure(host=address, keys=keys), "near": measure}, effort.repeats
    )
    return Figure(
        f"remote, start with two SUB children, {suffix}",
        "s",
        taken["far"],
        START_BUDGET_S,
        peer_name="the same Worker as local child",
        peer=taken["near"],
    )


def _tasks(effort: Effort, pair: _Pair, suffix: str) -> Iterator[Figure]:
    trips, tasks = effort.size(TRIPS), effort.size(TASKS)
    taken = interleaved(
        {
            "far trip": lambda: pair.trip_us(pair.far, trips),
            "near trip": lambda: pair.trip_us(pair.near, effort.size(PARKED_TRIPS), PAUSE_S),
            "bare trip": lambda: bare(pair.is_secure, trips, 0),
            "far rate": lambda: pair.rate(pair.far, tasks),
            "near rate": lambda: pair.rate(pair.near, tasks),
        },
        effort.repeats,
    )
    floors = [
        one + 2 * near for one, near in zip(taken["bare trip"], taken["near trip"], strict=True)
    ]
    yield Figure(
        f"remote, round trip of an empty task, {suffix}",
        "us",
        taken["far trip"],
        peer_name=_PEER,
        peer=floors,
    )
    yield _ratio(
        f"remote, round trip over {_PEER}, {suffix}", taken["far trip"], floors, _PEER, budget=1.3
    )
    yield Figure(
        f"remote, empty tasks, {suffix}",
        "1/s",
        taken["far rate"],
        RATE_BUDGET,
        at_least=True,
        peer_name="local child",
        peer=taken["near rate"],
        note=f"child_window={WINDOW} for both",
    )
    yield _ratio(
        f"remote, empty tasks over those of a local child, {suffix}",
        taken["far rate"],
        taken["near rate"],
        "local child",
        budget=0.5,
        at_least=True,
    )


def _small(effort: Effort, pair: _Pair, suffix: str) -> Figure:
    count = min(effort.size(SMALL_TASKS), pair.array.nbytes // SMALL_BYTES)
    taken = interleaved(
        {
            "far": lambda: pair.small_us(pair.far, count),
            "near": lambda: pair.small_us(pair.near, count),
        },
        effort.repeats,
    )
    return Figure(
        f"remote, one of many tasks with an INOUT of 1 KiB, {suffix}",
        "us",
        taken["far"],
        peer_name="local child",
        peer=taken["near"],
    )


def _copies(effort: Effort, pair: _Pair, suffix: str) -> Iterator[Figure]:
    yield Figure(
        f"remote, first touch of an input of {MIB} MiB, {suffix}",
        "GB/s",
        [pair.array.nbytes / pair.push() / 1e9],
        peer_name="bare pyzmq into touched memory",
        peer=[bare(pair.is_secure, 0, effort.size(MIB))],
    )
    taken = interleaved(
        {
            "changed": pair.push_changed,
            "bare": lambda: bare(pair.is_secure, 0, effort.size(MIB)),
            "unchanged": pair.push,
            "read": pair.read,
            "trip": lambda: pair.trip_us(pair.far, effort.size(PARKED_TRIPS)) / 1e6,
        },
        effort.repeats,
    )
    rates = [pair.array.nbytes / seconds / 1e9 for seconds in taken["changed"]]
    yield Figure(
        f"remote, changed input of {MIB} MiB, {suffix}",
        "GB/s",
        rates,
        peer_name="bare pyzmq",
        peer=taken["bare"],
    )
    yield _ratio(
        f"remote, changed input over bare pyzmq, {suffix}",
        rates,
        taken["bare"],
        "bare pyzmq",
        budget=0.8,
        at_least=True,
    )
    floors = [read + trip for read, trip in zip(taken["read"], taken["trip"], strict=True)]
    yield Figure(
        f"remote, unchanged input of {MIB} MiB, {suffix}",
        "ms",
        [seconds * 1e3 for seconds in taken["unchanged"]],
        peer_name="one read pass and a trip",
        peer=[seconds * 1e3 for seconds in floors],
    )
    yield _ratio(
        f"remote, unchanged input over one read pass and a trip, {suffix}",
        taken["unchanged"],
        floors,
        "one read pass and a trip",
        budget=1.2,
    )


def _ratio(
    name: str,
    above: Sequence[float],
    below: Sequence[float],
    peer: str,
    budget: float,
    *,
    at_least: bool = False,
) -> Figure:
    samples = [one / other for one, other in zip(above, below, strict=True)]
    return Figure(name, "x", samples, budget, at_least=at_least, peer_name=peer)


def _sessions(effort: Effort, address: str, keys: Path | None, suffix: str) -> Figure:
    """Run many sessions with equal work, and compare the slowest one with the median."""
    count, tasks = effort.size(SESSIONS), effort.size(SESSION_TASKS)
    with Worker(level=4, child_start_timeout_s=600) as worker:
        step = worker.register(_note_time)
        children = [
            worker.add_worker(Worker(level=3, host=address, keys=keys)) for _ in range(count)
        ]
        ends = worker.shared_array((count, 8), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            for _ in range(tasks):
                for child in children:
                    made = TaskArgs()
                    made.add_tensor(ends[child], TensorArgType.OUTPUT_EXISTING)
                    orch.submit_next_level(step, made, worker=child)

        def slowest() -> float:
            begin = time.monotonic_ns()
            worker.run(graph)
            taken = ends[:, 0] - begin
            return float(taken.max() / np.median(taken))

        slowest()
        samples = [slowest() for _ in range(effort.repeats)]
    return Figure(
        f"remote, {SESSIONS} sessions with equal work, slowest over median, {suffix}",
        "x",
        samples,
        budget=1.5,
        peer_name="the median session",
    )


def _note_time(orch: Any, args: Any, config: Any) -> None:
    import time

    args.tensor(0)[0] = time.monotonic_ns()


def _nothing(orch: Any, args: Any, config: Any) -> None:
    pass


@dataclass
class _Pair:
    """A Worker with one remote and one local child, and an array that both can use."""

    is_secure: bool
    worker: Worker
    step: Any
    far: int
    near: int
    array: Any

    @classmethod
    @contextmanager
    def open(cls, address: str, keys: Path | None, mib: int) -> Iterator[_Pair]:
        """Start both children, which have no children of their own; make an array of ``mib``."""
        with Worker(level=4, child_window=WINDOW) as worker:
            step = worker.register(_nothing)
            far = worker.add_worker(Worker(level=3, host=address, keys=keys))
            near = worker.add_worker(Worker(level=3))
            array = worker.shared_array((mib << 20,), "uint8")
            array[:] = 1
            worker.init()
            yield cls(keys is not None, worker, step, far, near, array)

    def trip_us(self, child: int, count: int, pause_s: float = 0.0) -> float:
        """Return the median microseconds of a run with one task; pause before each run."""

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(self.step, worker=child)

        times = []
        for _ in range(count):
            if pause_s:
                time.sleep(pause_s)
            times.append(self._seconds(graph))
        return percentile(times, 0.5) * 1e6

    def rate(self, child: int, count: int) -> float:
        """Return the tasks per second of a run with ``count`` tasks."""

        def graph(orch: Any, args: Any, config: Any) -> None:
            for _ in range(count):
                orch.submit_next_level(self.step, worker=child)

        return count / self._seconds(graph)

    def small_us(self, child: int, count: int) -> float:
        """Return the microseconds per task in a run of many tasks, each with its small array."""
        parts = self.array.reshape(-1, SMALL_BYTES)

        def graph(orch: Any, args: Any, config: Any) -> None:
            for number in range(count):
                made = TaskArgs()
                made.add_tensor(parts[number], TensorArgType.INOUT)
                orch.submit_next_level(self.step, made, worker=child)

        return self._seconds(graph) / count * 1e6

    def push(self) -> float:
        """Return the seconds that a remote task takes to read the array."""

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
        """Return the seconds that one local pass over the array takes."""
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
