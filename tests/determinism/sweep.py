"""Run a layered random graph with seeds of the deterministic mode, in this process.

usage: sweep.py RUNTIME FIRST LAST [LIBRARY]

The graph has 20 tasks in layers; each kernel records its start. For each seed, the program prints
the seed, the trace hash, and the first edge that was violated ("from>to") or "ok". It stops after
the first seed with a violation. LIBRARY replaces the runtime's native library.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pto_core import CoreCallable, kernel, open_device
from pto_runtime_hbg.variants import BuildGraphVariant

TASKS = 20
WIDTH = 5


def edges() -> list[tuple[int, int]]:
    """Return the edges, always the same: each task waits for two tasks of the layer before."""
    chosen = random.Random(20)
    found = []
    for task in range(WIDTH, TASKS):
        layer = task // WIDTH - 1
        for before in chosen.sample(range(layer * WIDTH, (layer + 1) * WIDTH), 2):
            found.append((before, task))
    return found


EDGES = edges()


def program(order: list[int]) -> Callable[..., None]:
    """Return the graph, whose kernels append their number to ``order``."""

    def noting(core: str) -> CoreCallable:
        @kernel(core=core)
        def note(number: int, _: Any) -> None:
            order.append(number)

        return note

    kernels = [noting("aiv"), noting("aic")]

    def graph(rt: Any, scratch: Any) -> None:
        for number in range(TASKS):
            rt.add_task(kernels[number % 2], (number, scratch))
        for before, after in EDGES:
            rt.add_successor(before, after)
        for number in range(TASKS):
            rt.publish(number)

    return graph


def broken_edge(order: list[int]) -> str:
    """Return the first edge that ``order`` violates, or "ok" if all tasks ran once."""
    if sorted(order) != list(range(TASKS)):
        return f"ran:{','.join(map(str, order))}"
    place = {task: position for position, task in enumerate(order)}
    for before, after in EDGES:
        if place[before] > place[after]:
            return f"{before}>{after}"
    return "ok"


def run_seed(runtime: str, seed: int) -> tuple[int, str]:
    """Return trace hash and result of one seed, on a new device."""
    order: list[int] = []
    with open_device(
        "a2a3sim", runtime=runtime, sim__mode="deterministic", sim__seed=seed
    ) as device:
        report = device.run(program(order), np.zeros(4, np.float32))
    return report.trace_hash, broken_edge(order)


def main() -> None:
    runtime, first, last, *library = sys.argv[1:]
    if library:
        BuildGraphVariant.library = lambda _: Path(library[0])  # type: ignore[method-assign]
    for seed in range(int(first), int(last)):
        trace, verdict = run_seed(runtime, seed)
        print(seed, f"{trace:016x}", verdict, flush=True)
        if verdict != "ok":
            return


main()
