"""Figures of the interface of August 2026, beside the same graphs in that of March 2026."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, ratios

if TYPE_CHECKING:
    from benchmarks.tensors import Run

MARCH = "the same in the interface of March 2026"
_BLOCKS = 24
_GRAPH_TASKS = 100


def figures(run: Run, march: Run, effort: Effort) -> Iterator[Figure]:
    """Measure all figures. The two functions run the graphs of august.cpp and of tensors.cpp."""

    def build_us(runs: Run, graph: int, count: int, width: int) -> float:
        """Return the time of a submit on one thread; the schedulers run after the last one."""
        runs(graph, count, width, 1)  # warm up: other work evicted the caches
        return runs(graph, count, width, 1)[1] / count * 1e6

    def chain_us(runs: Run) -> float:
        tasks = effort.size(10_000)
        return runs(0, tasks, 1)[0] / tasks * 1e6

    submits = effort.size(50_000)
    calls = effort.size(500)
    taken = interleaved(
        {
            "submit": lambda: build_us(run, 1, submits, 8),
            "submit, march": lambda: build_us(march, 1, submits, 8),
            "chain": lambda: chain_us(run),
            "chain, march": lambda: chain_us(march),
            "graph": lambda: build_us(run, 4, calls * _GRAPH_TASKS, _GRAPH_TASKS) * _GRAPH_TASKS,
            "inline": lambda: build_us(run, 5, calls * _GRAPH_TASKS, _GRAPH_TASKS) * _GRAPH_TASKS,
        },
        effort.repeats,
    )
    for name, label, unit, budget, peer, peer_name in (
        ("submit", "submit with three tensors", "us", 0.3, "submit, march", MARCH),
        ("chain", "task in a chain", "us", 0.2, "chain, march", MARCH),
        ("graph", "call of a recorded graph of 100 tasks", "us", 2, "inline", "its body, inline"),
    ):
        yield Figure(
            f"August 2026, {label}",
            unit,
            taken[name],
            budget=budget,
            peer_name=peer_name,
            peer=taken[peer],
        )
    blocks = effort.size(2_000 * _BLOCKS)
    yield Figure(
        "August 2026, one submit of 24 blocks over 24 single submits",
        "x",
        ratios(
            lambda: run(2, blocks, _BLOCKS)[0],
            lambda: run(3, blocks, _BLOCKS)[0],
            effort.repeats,
            turns=3,
        ),
        budget=0.4,
        peer_name="single submits",
    )
