"""Figures of level 2: building and running graphs of empty kernels on the simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.figure import REPEATS, Figure, interleaved, percentile, sample
from benchmarks.graphs import chains_program, run_chains
from benchmarks.native import Binaries, numbers
from pto_core import CallConfig, Device, RunReport, open_device

TASKS = 100_000
SINGLE_CHAIN_TASKS = 10_000
SPIN_LOOPS = 11_500
"""Turns of the compute-bound kernel: about 20 us."""


def _us_per_task(nanoseconds: int, tasks: int) -> float:
    return nanoseconds / tasks / 1000


def figures(binaries: Binaries) -> Iterator[Figure]:
    """Measure everything; the device stays open, warm, between figures."""
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        yield from _one_task(device)
        yield from _graphs(device, binaries)
        yield _size_independence(device)
        yield _core_count(device)
        yield _compute_bound(device, binaries)
        yield _idle()


def _one_task(device: Device) -> Iterator[Figure]:
    program = chains_program()
    runs = 2_000
    medians, tails = [], []
    for _ in range(REPEATS):
        taken = []
        for _ in range(runs):
            start = time.perf_counter()
            run_chains(device, program, 1, 0)
            taken.append((time.perf_counter() - start) * 1000)
        medians.append(percentile(taken, 0.5))
        tails.append(percentile(taken, 0.99))
    yield Figure("one-task run, median", "ms", medians, budget=0.15)
    yield Figure("one-task run, p99", "ms", tails, budget=0.5)


def _graphs(device: Device, binaries: Binaries) -> Iterator[Figure]:
    program = chains_program()
    for label, tasks, chains, budget in (
        ("independent", TASKS, 0, 0.06),
        ("8 chains", TASKS, 8, 0.06),
        ("single chain", SINGLE_CHAIN_TASKS, 1, 0.12),
    ):
        reports: list[RunReport] = []

        def run(tasks: int = tasks, chains: int = chains, into: list[RunReport] = reports) -> float:
            into.append(run_chains(device, program, tasks, chains))
            return 0.0

        peers = _peers(binaries, "chains" if chains else "independent", tasks, max(chains, 1))
        sample(run)
        built = [_us_per_task(report.build_ns, tasks) for report in reports[1:]]
        ran = [_us_per_task(report.run_ns, tasks) for report in reports[1:]]
        both = [b + r for b, r in zip(built, ran, strict=True)]
        yield Figure(f"build from C++, {label}", "us/task", built, budget=0.05)
        yield Figure(f"run, {label}", "us/task", ran, budget=budget)
        for name, values in peers:
            yield Figure(
                f"build and run, {label}, beside {name}",
                "us/task",
                both,
                peer_name=name,
                peer=values,
                not_measured="" if values else "TASKFLOW_INCLUDE is not set",
            )


def _peers(
    binaries: Binaries, graph: str, tasks: int, chains: int
) -> list[tuple[str, list[float]]]:
    arguments = (graph, tasks, chains, REPEATS)
    openmp = [line[0] / 1000 for line in numbers(binaries.openmp, *arguments)]
    taskflow = []
    if binaries.taskflow is not None:
        taskflow = [sum(line) / 1000 for line in numbers(binaries.taskflow, *arguments)]
    return [("GCC OpenMP tasks", openmp), ("Taskflow static graph", taskflow)]


def _size_independence(device: Device) -> Figure:
    program = chains_program()

    def cost(tasks: int) -> Callable[[], float]:
        def measure() -> float:
            report = run_chains(device, program, tasks, 8)
            return _us_per_task(report.build_ns + report.run_ns, tasks)

        return measure

    sizes = (1_000, 4_096, 16_384, 65_536, 131_072)
    taken = interleaved({str(size): cost(size) for size in sizes}, repeats=4 * REPEATS)
    small = sorted(taken["1000"])[len(taken["1000"]) // 2]
    ratios = [max(values) for values in zip(*(taken[str(s)] for s in sizes[1:]), strict=True)]
    return Figure(
        "cost a task from 4,096 to 131,072 tasks (largest), over 1,000 tasks",
        "x",
        [ratio / small for ratio in ratios],
        budget=1.5,
        peer_name="1,000 tasks",
    )


def _core_count(device: Device) -> Figure:
    program = chains_program()

    def cost(block_dim: int) -> Callable[[], float]:
        config = CallConfig(block_dim=block_dim)

        def measure() -> float:
            report = run_chains(device, program, TASKS, 0, config=config)
            return _us_per_task(report.run_ns, TASKS)

        return measure

    taken = interleaved({"72": cost(24), "6": cost(2)})
    ratios = [many / few for many, few in zip(taken["72"], taken["6"], strict=True)]
    return Figure("72 simulated cores over 6", "x", ratios, budget=1.3, peer_name="6 cores")


def _compute_bound(device: Device, binaries: Binaries) -> Figure:
    program = chains_program("spin")
    tasks = 4_000

    def ours() -> float:
        return run_chains(device, program, tasks, 0, SPIN_LOOPS).run_ns / tasks

    def bare() -> float:
        return numbers(binaries.bare_threads, binaries.spin, tasks, 2, 1, SPIN_LOOPS)[0][0]

    taken = interleaved({"ours": ours, "bare": bare})
    shares = [b / o for b, o in zip(taken["bare"], taken["ours"], strict=True)]
    return Figure(
        "kernels of 20 us on 2 host cores, share of two bare threads",
        "x",
        shares,
        budget=0.93,
        at_least=True,
        peer_name="two bare threads",
    )


def _idle() -> Figure:
    seconds = 2.0

    def measure() -> float:
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds * 100

    return Figure("idle open device", "% CPU", [measure() for _ in range(3)], budget=0.5)
