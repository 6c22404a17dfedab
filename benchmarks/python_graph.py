"""Figures of graphs that a Python orchestration builds, and of kernels in Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, wall_s
from benchmarks.graphs import SOURCES
from benchmarks.native import Binaries
from pto_core import In, Out, kernel, open_device
from pto_core.chip import CoreCallable, Device, KernelSource
from pto_core.errors import UsageError

TASKS = 50_000
KERNELS, ELEMENTS = 16, 1000


class _Loops:
    """Times loops, and subtracts the time of the same loop with an empty body."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def time(self, name: str, loop: Any, *arguments: Any) -> None:
        start = time.perf_counter()
        loop(*arguments)
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)

    def us(self, name: str, count: int) -> list[float]:
        """Return the time of one iteration in each sample but the first, which warms up."""
        empty = min(self.seconds["nothing"])
        return [max(value - empty, 0.0) / count * 1e6 for value in self.seconds[name][1:]]


def _nothing(tasks: Iterable[int]) -> None:
    for _ in tasks:
        pass


def _add_tasks(add_task: Any, tasks: Iterable[int], kernel: Any, a: Any, b: Any, out: Any) -> None:
    for _ in tasks:
        add_task(kernel, (a, b, out))


def _add_edges(add_successor: Any, tasks: Iterable[int]) -> None:
    for task in tasks:
        add_successor(task, task + 1)


def figures(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure the calls of an orchestration, and kernels in Python."""
    yield from _calls(binaries, effort)
    yield from _kernels(effort)


def _calls(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure ``add_task`` with three array arguments and ``add_successor``."""
    empty = CoreCallable(KernelSource(SOURCES / "empty.cpp"), "aiv")
    tasks, loops, empty_call = range(effort.size(TASKS)), _Loops(), binaries.empty_call

    def graph(rt: Any, a: Any, b: Any, out: Any) -> None:
        loops.time("nothing", _nothing, tasks)
        loops.time("task", _add_tasks, rt.add_task, tasks, empty, a, b, out)
        loops.time("task floor", _add_tasks, empty_call, tasks, empty, a, b, out)
        loops.time("edge", _add_edges, rt.add_successor, tasks[:-1])
        loops.time("edge floor", _add_edges, empty_call, tasks[:-1])

    arrays = [np.zeros(16, np.float32) for _ in range(3)]
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        for _ in range(effort.repeats + 1):
            device.run(graph, *arrays)
    for name, key, budget in (
        ("Python add_task with three arguments", "task", 0.5),
        ("Python add_successor", "edge", 0.2),
    ):
        yield Figure(
            name,
            "us",
            loops.us(key, len(tasks)),
            budget=budget,
            peer_name="empty native call",
            peer=loops.us(f"{key} floor", len(tasks)),
            note="without the overhead of the loop",
        )


def _iterated(x: In, out: Out) -> None:
    for i in range(len(x)):
        value = x[i]
        for _ in range(100):
            value = value * 0.5 + 1.0
        out[i] = value


def _kernels(effort: Effort) -> Iterator[Figure]:
    """Measure kernels that numba compiles beside the same ones in Python, and on one thread."""
    name = f"{KERNELS} kernels that numba compiles"
    peers = ("the same in Python", "the same on one host thread")
    try:
        compiled = kernel(core="aiv", jit="numba")(_iterated)
    except UsageError as error:
        for peer in peers:
            yield Figure(f"{name}, beside {peer}", "ms", peer_name=peer, not_measured=str(error))
        return
    plain = kernel(core="aiv")(_iterated)
    x = np.ones((KERNELS, effort.size(ELEMENTS)))
    with (
        open_device("a2a3sim", runtime="pto2") as cores,
        open_device("a2a3sim", runtime="pto2", settings={"sim.workers": 1}) as thread,
    ):
        ways = {
            name: (cores, compiled),
            peers[0]: (cores, plain),
            peers[1]: (thread, compiled),
        }
        measures = {way: partial(_run_ms, *used, x) for way, used in ways.items()}
        taken = interleaved(measures, effort.repeats)
    for peer in peers:
        yield Figure(f"{name}, beside {peer}", "ms", taken[name], peer_name=peer, peer=taken[peer])


def _run_ms(device: Device, used: CoreCallable[...], x: Any) -> float:
    def graph(rt: Any, x: In, out: Out) -> None:
        for row in range(KERNELS):
            rt.submit(used, x[row], out[row])

    return wall_s(lambda: device.run(graph, x, np.empty_like(x))) * 1e3
