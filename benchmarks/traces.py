"""Figures of traces: the cost of a record, and of a run with and without a trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figure import Figure, ratios, wall_s
from benchmarks.graphs import chains_program, run_chains
from benchmarks.native import Binaries, numbers
from pto_core import Worker, open_device
from pto_core.chip import Device
from pto_core.published import CallableHandle

RECORDS = 10_000_000
SPIN_TASKS = 4_000
SPIN_LOOPS = 5_750
"""Iterations of the compute-bound kernel: about 10 us."""
WORKER_TASKS = 10_000
TURNS = 5
NOTE = f"a sample is a ratio of medians of {TURNS} turns"


def spin(args: Any = None) -> None:
    """Keep a core busy for 10 microseconds."""
    end = time.perf_counter_ns() + 10_000
    while time.perf_counter_ns() < end:
        pass


def nothing(args: Any = None) -> None:
    """Do nothing."""


def figures(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure records alone, and runs with and without a trace."""
    size = effort.size(RECORDS)
    taken = [numbers(binaries.trace_records, size)[0] for _ in range(effort.repeats)]
    written, tested, floor, empty = (list(column) for column in zip(*taken, strict=True))
    yield Figure(
        "trace record",
        "ns",
        written,
        budget=40.0,
        peer_name="the same clock and a store of 32 bytes",
        peer=floor,
    )
    yield Figure(
        "trace record in a run without a trace",
        "ns",
        tested,
        budget=1.0,
        peer_name="an empty loop",
        peer=empty,
    )
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        yield _traced(device, effort)
    with Worker(level=3, num_sub_workers=1) as worker:
        yield from _traced_worker(worker, effort)


def _traced(device: Device, effort: Effort) -> Figure:
    program = chains_program("spin")
    tasks = effort.size(SPIN_TASKS)

    def run_ns(level: int | None) -> float:
        return run_chains(device, program, tasks, 0, SPIN_LOOPS, trace=level).run_ns

    return Figure(
        "tasks of 10 us, trace of level 1 over no trace",
        "x",
        ratios(lambda: run_ns(1), lambda: run_ns(None), effort.repeats, TURNS),
        budget=1.02,
        peer_name="no trace",
        note=NOTE,
    )


def _traced_worker(worker: Worker, effort: Effort) -> Iterator[Figure]:
    tasks = effort.size(WORKER_TASKS)
    for name, function, budget in (("tasks of 10 us", spin, 1.02), ("empty tasks", nothing, None)):
        handle = worker.register(function)

        def graph(orch: Any, args: Any, config: Any, handle: CallableHandle = handle) -> None:
            for _ in range(tasks):
                orch.submit_sub(handle)

        def plain_s(graph: Any = graph) -> float:
            return wall_s(lambda: worker.run(graph))

        def traced_s(graph: Any = graph) -> float:
            with worker.trace(1):
                return wall_s(lambda: worker.run(graph))

        yield Figure(
            f"Worker, {name}, trace of level 1 over no trace",
            "x",
            ratios(traced_s, plain_s, effort.repeats, TURNS),
            budget=budget,
            peer_name="no trace",
            note=NOTE,
        )
