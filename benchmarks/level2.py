"""Figures of level 2: building and running graphs of empty kernels on the simulator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile, ratios
from benchmarks.graphs import chains_program, run_chains
from benchmarks.native import Binaries, numbers
from pto_core import open_device
from pto_core.chip import CallConfig, Device

TASKS = 100_000
SINGLE_CHAIN_TASKS = 10_000
SPIN_LOOPS = 11_500
"""Iterations of the compute-bound kernel: about 20 us."""
HANDOVER = "round trip between two threads"


def figures(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure all figures; the device stays open between figures and is warm."""
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        yield from _one_task(device, binaries, effort)
        yield from _graphs(device, binaries, effort)
        yield _size_independence(device, effort)
        yield _core_count(device, effort)
        yield _compute_bound(device, binaries, effort)


def _one_task(device: Device, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    program = chains_program()
    runs = effort.size(2_000)

    def ours() -> list[float]:
        taken = []
        for _ in range(2 * runs):
            start = time.perf_counter()
            run_chains(device, program, 1, 0)
            taken.append((time.perf_counter() - start) * 1000)
        taken = taken[runs:]  # the first half is the warm-up, as in the floor
        return [percentile(taken, 0.5), percentile(taken, 0.99)]

    def floor() -> list[float]:
        return [ns / 1e6 for ns in numbers(binaries.floors, "handover", runs)[0]]

    taken = interleaved({"ours": ours, "floor": floor}, effort.repeats)
    for column, (name, budget) in enumerate((("median", 0.15), ("p99", 0.5))):
        yield Figure(
            f"one-task run, {name}",
            "ms",
            [values[column] for values in taken["ours"]],
            budget=budget,
            peer_name=HANDOVER,
            peer=[values[column] for values in taken["floor"]],
        )


def _graphs(device: Device, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    for label, tasks, chains, budget in (
        ("independent", TASKS, 0, 0.06),
        ("8 chains", TASKS, 8, 0.06),
        ("single chain", SINGLE_CHAIN_TASKS, 1, 0.12),
    ):
        tasks = effort.size(tasks)
        measures = {"ours": _build_and_run(device, tasks, chains), **_floors(binaries, tasks)}
        measures |= _peers(binaries, "chains" if chains else "independent", tasks, max(chains, 1))
        taken = interleaved(measures, effort.repeats)
        columns = {name: [sum(values) for values in rows] for name, rows in taken.items()}
        for name, column, limit, peer in (
            ("build from C++", 0, 0.05, "vector append"),
            ("run", 1, budget, "plain loop of calls"),
        ):
            yield Figure(
                f"{name}, {label}",
                "us/task",
                [values[column] for values in taken["ours"]],
                budget=limit,
                peer_name=peer,
                peer=columns[peer],
            )
        for name in ("GCC OpenMP tasks", "Taskflow static graph"):
            yield Figure(
                f"build and run, {label}, compared with {name}",
                "us/task",
                columns["ours"],
                peer_name=name,
                peer=columns.get(name, []),
                not_measured="" if name in columns else "TASKFLOW_INCLUDE is not set",
            )


def _build_and_run(device: Device, tasks: int, chains: int) -> Callable[[], list[float]]:
    program = chains_program()

    def measure() -> list[float]:
        run_chains(device, program, tasks, chains)  # warm up: other work evicted the caches
        report = run_chains(device, program, tasks, chains)
        return [_us_per_task(report.build_ns, tasks), _us_per_task(report.run_ns, tasks)]

    return measure


def _us_per_task(nanoseconds: int, tasks: int) -> float:
    return nanoseconds / tasks / 1000


def _program(*command: object) -> Callable[[], list[float]]:
    return lambda: [ns / 1000 for ns in numbers(*command)[0]]


def _floors(binaries: Binaries, tasks: int) -> dict[str, Callable[[], list[float]]]:
    return {
        "vector append": _program(binaries.floors, "append", tasks),
        "plain loop of calls": _program(binaries.floors, "call", tasks, binaries.kernel("empty")),
    }


def _peers(
    binaries: Binaries, graph: str, tasks: int, chains: int
) -> dict[str, Callable[[], list[float]]]:
    arguments = (graph, tasks, chains, 1)
    peers = {"GCC OpenMP tasks": _program(binaries.openmp, *arguments)}
    if binaries.taskflow is not None:
        peers["Taskflow static graph"] = _program(binaries.taskflow, *arguments)
    return peers


def _size_independence(device: Device, effort: Effort) -> Figure:
    turns = 4
    sizes = [effort.size(size) for size in (1_000, 4_096, 16_384, 65_536, 131_072)]
    measures = [_build_and_run(device, size, 8) for size in sizes]
    taken = interleaved(dict(zip("abcde", measures, strict=True)), turns * effort.repeats)
    costs = [[sum(values) for values in rows] for rows in taken.values()]
    samples = []
    for first in range(0, len(costs[0]), turns):
        small, *large = (statistics.median(cost[first : first + turns]) for cost in costs)
        samples.append(max(large) / small)
    return Figure(
        "cost a task from 4,096 to 131,072 tasks (largest), over 1,000 tasks",
        "x",
        samples,
        budget=1.5,
        peer_name="1,000 tasks",
        note=f"a sample is a ratio of medians of {turns} turns",
    )


def _core_count(device: Device, effort: Effort) -> Figure:
    program = chains_program()
    tasks = effort.size(TASKS)
    turns = 20

    def run_ns(block_dim: int) -> Callable[[], float]:
        config = CallConfig(block_dim=block_dim)
        return lambda: run_chains(device, program, tasks, 0, config=config).run_ns

    return Figure(
        "72 simulated cores over 6",
        "x",
        ratios(run_ns(24), run_ns(2), effort.repeats, turns),
        budget=1.3,
        peer_name="6 cores",
        note=f"a sample is a ratio of medians of {turns} turns",
    )


def _compute_bound(device: Device, binaries: Binaries, effort: Effort) -> Figure:
    program = chains_program("spin")
    kernel = binaries.kernel("spin")
    tasks = effort.size(4_000)
    turns = 5

    def ours() -> float:
        return run_chains(device, program, tasks, 0, SPIN_LOOPS).run_ns / tasks

    def bare() -> float:
        return numbers(binaries.bare_threads, kernel, tasks, 2, 1, SPIN_LOOPS)[0][0]

    return Figure(
        "kernels of 20 us on 2 host cores, share of two bare threads",
        "x",
        ratios(bare, ours, effort.repeats, turns),
        budget=0.93,
        at_least=True,
        peer_name="two bare threads",
        note=f"a sample is a ratio of medians of {turns} turns",
    )
