"""Figures of graphs that a Python orchestration builds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.figure import REPEATS, Figure
from benchmarks.graphs import SOURCES
from pto_core import CoreCallable, KernelSource, open_device

TASKS = 50_000


def figures() -> Iterator[Figure]:
    """Measure ``add_task`` with three array arguments and ``add_successor``."""
    kernel = CoreCallable(KernelSource(SOURCES / "empty.cpp"), "aiv")
    times: dict[str, list[float]] = {"empty": [], "task": [], "edge": []}

    def graph(rt: Any, a: Any, b: Any, out: Any) -> None:
        add_task, add_successor = rt.add_task, rt.add_successor
        start = time.perf_counter()
        for _ in range(TASKS):
            pass
        between = time.perf_counter()
        for _ in range(TASKS):
            add_task(kernel, (a, b, out))
        middle = time.perf_counter()
        for task in range(1, TASKS):
            add_successor(task - 1, task)
        end = time.perf_counter()
        times["empty"].append(between - start)
        times["task"].append(middle - between)
        times["edge"].append(end - middle)

    arrays = [np.zeros(16, np.float32) for _ in range(3)]
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        for _ in range(REPEATS + 1):
            device.run(graph, *arrays)
    loop = min(times["empty"])
    for name, key, budget in (
        ("Python add_task with three arguments", "task", 0.5),
        ("Python add_successor", "edge", 0.2),
    ):
        samples = [(value - loop) / TASKS * 1e6 for value in times[key][1:]]
        yield Figure(name, "us", samples, budget=budget, note="loop overhead taken off")
