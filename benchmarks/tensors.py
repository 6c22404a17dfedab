"""Figures of the runtime that finds dependencies automatically, with empty kernels."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks import august
from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile, ratios
from benchmarks.graphs import SOURCES
from benchmarks.level2 import HANDOVER
from benchmarks.native import Binaries, numbers
from pto_core import open_device
from pto_core.chip import CallConfig, ChipCallable, CoreCallable, Device, DeviceArray, KernelSource
from pto_core.kernels import OrchestrationSource
from pto_runtime_pto2 import plugin

TASKS = 100_000
RUNTIME = "tensormap_and_ringbuffer"
PEER = "GCC OpenMP depend tasks"


ALONE = 60_000
"""The window of each ring, in tasks. It is so large that a submitter on one thread never waits."""
SHAPES = ("1-D slices", "2-D tiles", "strided boxes")
"""The shapes of regions, in the order in which peers/submits.cpp prints them."""


class _Graph(NamedTuple):
    """A graph of sources/orchestration/tensors.cpp and its OpenMP counterpart."""

    label: str
    number: int
    peer: str
    tasks: int
    width: int
    budget_us: float
    submit_budget_us: float | None = None
    tasks_each: int = 1
    """How many more tasks the graph submits if its argument ``tasks`` grows by 1."""


_GRAPHS = (
    _Graph("one INOUT over 8 slices", 0, "slices", TASKS, 8, 0.12, 0.08),
    _Graph("two inputs, one new output", 1, "outputs", TASKS, 8, 0.25),
    _Graph("single chain", 0, "slices", 10_000, 1, 0.12),
    _Graph("paged attention, 64 blocks", 2, "attention", 256, 64, 25_000 / 65_792, None, 257),
)


def figures(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure all figures; the device stays open between figures and is warm."""
    with open_device("a2a3sim", runtime=RUNTIME) as device:
        buffer = device.to_device(np.zeros(1 << 23, np.float32))
        run = _runner(device, _program("tensors"), buffer)
        yield from _one_task(run, binaries, effort)
        for graph in _GRAPHS:
            yield from _graph(run, graph, binaries, effort)
        for graph in _GRAPHS[:2]:
            yield _submit_alone(run, graph, binaries, effort)
        yield from _regions(binaries, effort)
        for width in (24, 2, 1):
            yield _blocks(run, width, effort)
        yield from _python(device, buffer, binaries, effort)
        yield from august.figures(_runner(device, _program("august"), buffer), run, effort)


class Run(Protocol):
    """A run of a graph with a number of tasks, a width and a number of AICPU threads."""

    def __call__(self, graph: int, tasks: int, width: int, threads: int = 3) -> tuple[float, float]:
        """Return the wall time of the run, and of its orchestration, in seconds."""


def _runner(device: Device, program: ChipCallable, buffer: DeviceArray) -> Run:
    def run(graph: int, tasks: int, width: int, threads: int = 3) -> tuple[float, float]:
        scalars = [ctypes.c_int64(value) for value in (graph, tasks, width)]
        config = CallConfig(aicpu_thread_num=threads)
        start = time.perf_counter()
        report = device.run(program, buffer, *scalars, config=config)
        return time.perf_counter() - start, report.build_ns / 1e9

    return run


def _program(name: str) -> ChipCallable:
    empty = KernelSource(SOURCES / "empty.cpp")
    return ChipCallable(
        OrchestrationSource(SOURCES / "orchestration" / f"{name}.cpp"),
        children={0: CoreCallable(empty, "aiv"), 1: CoreCallable(empty, "aic")},
        signature=("inout", "scalar", "scalar", "scalar"),
    )


def _one_task(run: Run, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    runs = effort.size(2_000)

    def ours() -> list[float]:
        taken = [run(0, 1, 1)[0] * 1000 for _ in range(2 * runs)]
        taken = taken[runs:]  # the first half is the warm-up, as in the floor
        return [percentile(taken, 0.5), percentile(taken, 0.99)]

    def floor() -> list[float]:
        return [ns / 1e6 for ns in numbers(binaries.floors, "handover", runs)[0]]

    taken = interleaved({"ours": ours, "floor": floor}, effort.repeats)
    for column, (name, budget) in enumerate((("median", 0.15), ("p99", 0.5))):
        yield Figure(
            f"one-task run with tensors, {name}",
            "ms",
            [values[column] for values in taken["ours"]],
            budget=budget,
            peer_name=HANDOVER,
            peer=[values[column] for values in taken["floor"]],
        )


def _graph(run: Run, graph: _Graph, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    tasks = effort.size(graph.tasks)
    count = tasks * graph.tasks_each

    def ours() -> tuple[float, float]:
        run(graph.number, tasks, graph.width)  # warm up: other work evicted the caches
        whole, submit = run(graph.number, tasks, graph.width)
        return whole / count * 1e6, submit / count * 1e6

    def peer() -> tuple[float, float]:
        ns = numbers(binaries.openmp_depend, graph.peer, tasks, graph.width, 1)[0][0]
        return ns / 1000, 0.0

    taken = interleaved({"ours": ours, "peer": peer}, effort.repeats)
    yield Figure(
        f"submit and run, {graph.label}",
        "us/task",
        [whole for whole, _ in taken["ours"]],
        budget=graph.budget_us,
        peer_name=PEER,
        peer=[whole for whole, _ in taken["peer"]],
    )
    if graph.submit_budget_us is not None:
        yield Figure(
            f"orchestration alone, {graph.label}",
            "us/task",
            [submit for _, submit in taken["ours"]],
            budget=graph.submit_budget_us,
            peer_name=f"{PEER}, submit and run",
            peer=[whole for whole, _ in taken["peer"]],
            note="while the schedulers run",
        )


def _submit_alone(run: Run, graph: _Graph, binaries: Binaries, effort: Effort) -> Figure:
    tasks = effort.size(ALONE)

    def ours() -> float:
        run(graph.number, tasks, graph.width, 1)  # warm up: other work evicted the caches
        return run(graph.number, tasks, graph.width, 1)[1] / tasks * 1e6

    def floor() -> float:
        return numbers(binaries.floors, "append", tasks)[0][0] / 1000

    taken = interleaved({"ours": ours, "floor": floor}, effort.repeats)
    return Figure(
        f"submit alone on one thread, {graph.label}",
        "us/task",
        taken["ours"],
        budget=graph.submit_budget_us,
        peer_name="vector append",
        peer=taken["floor"],
        note="the schedulers run after the last submit",
    )


def _regions(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure how much many regions slow submits down: the worse of live and retired regions."""
    submits = effort.size(20_000)
    taken = [numbers(binaries.submits, plugin.library(), submits) for _ in range(effort.repeats)]
    for index, shape in enumerate(SHAPES):
        for column, name in enumerate(("median", "p99")):
            pairs = [lines[2 * index : 2 * index + 2] for lines in taken]
            yield Figure(
                f"submit among 16,384 {shape} over 8, {name}",
                "x",
                [max(line[2 + column] / line[column] for line in pair) for pair in pairs],
                budget=1.3,
                peer_name="8 regions",
                note="the larger of two ratios: with regions of live tasks, and of retired tasks",
            )


def _blocks(run: Run, width: int, effort: Effort) -> Figure:
    blocks = effort.size(2_000 * width)
    return Figure(
        f"one submit of {width} blocks over {width} single submits",
        "x",
        ratios(
            lambda: run(3, blocks, width)[0],
            lambda: run(4, blocks, width)[0],
            effort.repeats,
            turns=3,
        ),
        peer_name="single submits",
    )


def _python(
    device: Device, buffer: DeviceArray, binaries: Binaries, effort: Effort
) -> Iterator[Figure]:
    kernel = CoreCallable(KernelSource(SOURCES / "empty.cpp"), "aiv", ("in", "in", "out"))
    tasks = effort.size(50_000)
    taken: dict[str, list[float]] = {"submit": [], "floor": []}

    def submit(call: Callable[..., object], name: str, a: object, b: object, out: object) -> None:
        start = time.perf_counter()
        for _ in range(tasks):
            call(kernel, a, b, out)
        taken[name].append((time.perf_counter() - start) / tasks * 1e6)

    def graph(rt: object, memory: DeviceArray) -> None:
        arrays = [memory[i : i + 16] for i in (0, 16, 32)]
        submit(rt.submit, "submit", *arrays)  # type: ignore[attr-defined]
        submit(binaries.empty_call, "floor", *arrays)

    for _ in range(effort.repeats + 1):
        device.run(graph, buffer, hazards="raw")
    yield Figure(
        "Python submit with three tensors",
        "us",
        taken["submit"][1:],
        budget=0.6,
        peer_name="empty native call",
        peer=taken["floor"][1:],
    )
