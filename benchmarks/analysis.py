"""The figure of the analysis of an access log, which computes edges, order and races."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved
from pto_core import In, InOut, kernel, open_device
from pto_insight.graphs import AccessLog, TaskGraph

TASKS = 100_000
TILES = 256
TILE = 64
IN_SCOPE = 1000


@kernel(core="aiv")
def nothing(left: In, right: In, target: InOut) -> None:
    """Do nothing, so that recording takes little time."""


def figures(effort: Effort) -> Iterator[Figure]:
    """Record the access log of a program, and measure its analysis."""
    tasks = effort.size(TASKS)
    log = _recorded(tasks)
    taken = interleaved(
        {"analysis": _analysis(log), "recording": lambda: _seconds(lambda: _recorded(tasks))},
        effort.repeats,
    )
    yield Figure(
        f"analysis of a log of {TASKS:,} tasks",
        "s",
        taken["analysis"],
        budget=5.0,
        peer_name="open a device and record the log",
        peer=taken["recording"],
        note=f"{len(TaskGraph(log).edge_rows):,} edges; edges, order and race check",
    )


def _recorded(tasks: int) -> AccessLog:
    def graph(rt: Any, data: InOut) -> None:
        tiles = [data[n * TILE : (n + 1) * TILE] for n in range(TILES)]
        for first in range(0, tasks, IN_SCOPE):
            with rt.scope():
                for task in range(first, min(first + IN_SCOPE, tasks)):
                    left, right = tiles[task * 7 % TILES], tiles[task * 3 % TILES]
                    rt.submit(nothing, left, right, tiles[-task % 199])

    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        report = device.run(graph, np.zeros(TILES * TILE, np.float32), accesses=True)
    assert report.accesses is not None
    return report.accesses


def _analysis(log: AccessLog) -> Callable[[], float]:
    def analyse() -> None:
        assert TaskGraph(log).check().is_clean

    return lambda: _seconds(analyse)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
