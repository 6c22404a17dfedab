"""Figures of graphs that a Python orchestration builds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure
from benchmarks.graphs import SOURCES
from benchmarks.native import Binaries
from pto_core import open_device
from pto_core.chip import CoreCallable, KernelSource

TASKS = 50_000


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
    """Measure ``add_task`` with three array arguments and ``add_successor``."""
    kernel = CoreCallable(KernelSource(SOURCES / "empty.cpp"), "aiv")
    tasks, loops, empty_call = range(effort.size(TASKS)), _Loops(), binaries.empty_call

    def graph(rt: Any, a: Any, b: Any, out: Any) -> None:
        loops.time("nothing", _nothing, tasks)
        loops.time("task", _add_tasks, rt.add_task, tasks, kernel, a, b, out)
        loops.time("task floor", _add_tasks, empty_call, tasks, kernel, a, b, out)
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
