"""Figures of traces: the cost of a record, and of a run with and without a trace."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.effort import Effort
from benchmarks.figure import Figure, ratios
from benchmarks.graphs import chains_program, run_chains
from benchmarks.native import Binaries, numbers
from pto_core import Device, open_device

RECORDS = 10_000_000
SPIN_TASKS = 4_000
SPIN_LOOPS = 5_750
"""Iterations of the compute-bound kernel: about 10 us."""


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


def _traced(device: Device, effort: Effort) -> Figure:
    program = chains_program("spin")
    tasks = effort.size(SPIN_TASKS)
    turns = 5

    def run_ns(level: int | None) -> float:
        return run_chains(device, program, tasks, 0, SPIN_LOOPS, trace=level).run_ns

    return Figure(
        "tasks of 10 us, trace of level 1 over no trace",
        "x",
        ratios(lambda: run_ns(1), lambda: run_ns(None), effort.repeats, turns),
        budget=1.02,
        peer_name="no trace",
        note=f"a sample is a ratio of medians of {turns} turns",
    )
