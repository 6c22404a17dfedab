"""The trace of a run equals the log that its kernels wrote, under every variant."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import CallConfig, Device, In, Out, Scalar
from pto_core.errors import RunTimeoutError, TaskFailedError, UsageError
from pto_insight.traces import Event, Trace, joined
from pto_insight.traces.files import read_trace

VARIANTS = ("host_build_graph", "aicpu_build_graph", "tensormap_and_ringbuffer")
WIDTH, LAYERS = 6, 10
TASKS = WIDTH * LAYERS
TOLERANCE_NS = 50_000
"""The maximum error of a conversion between two clocks."""


class Program:
    """Layers of tasks; a task depends on two of the layer before. Each kernel logs its run."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.log: list[tuple[int, int, int, dict[int, int]]] = []
        self.ids: dict[int, int] = {}
        self.device: Device | None = None

        @pto_core.kernel(core="aiv")
        def logs(out: Out, left: In, right: In, index: Scalar("int64")) -> None:
            begin = time.monotonic_ns()
            assert self.device is not None
            core_of = {running.task: running.core for running in self.device.activity()}
            np.sqrt(np.arange(500.0))
            out[0] = left[0] + right[0] + 1
            self.log.append((index, begin, time.monotonic_ns(), core_of))

        self.kernel = logs

    def graph(self, rt: Any, *cells: Any) -> None:
        """Submit all tasks; cell ``layer * WIDTH + i`` is written by the task with that index."""
        for index in range(TASKS):
            layer, i = divmod(index, WIDTH)
            before = [(layer - 1) * WIDTH + (i + k) % WIDTH if layer else TASKS for k in (0, 1)]
            arguments = (cells[index], cells[before[0]], cells[before[1]], index)
            if self.variant == "tensormap_and_ringbuffer":
                self.ids[index] = rt.submit(self.kernel, *arguments)
                continue
            self.ids[index] = rt.add_task(self.kernel, arguments)
            for one in {*before} - {TASKS}:
                rt.add_successor(self.ids[one], self.ids[index])
            if self.variant == "aicpu_build_graph":
                rt.publish(self.ids[index])

    def run(self, device: Device, **options: Any) -> Trace:
        self.device = device
        self.log.clear()
        report = device.run(self.graph, *[np.zeros(1) for _ in range(TASKS + 1)], **options)
        assert report.trace is not None
        return report.trace


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(variant: str) -> Callable[..., Any]:
    def make(**settings: Any) -> Any:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        return pto_core.open_device("a2a3sim", runtime=variant, settings=named)

    return make


def check_truth(program: Program, trace: Trace) -> int:
    """Compare every task of the trace with the log; return how many were compared."""
    rows = {int(row["task"]): row for row in trace.tasks}
    compared = 0
    for index, begin, end, core_of in program.log:
        task = program.ids[index]
        row = rows.get(task)
        if row is None or row["start"] < 0 or row["end"] < 0:
            continue
        compared += 1
        assert row["core"] == core_of[task]
        assert trace.kernel_name(row["kernel"]) == "logs"
        assert trace.epoch_ns + row["start"] <= begin + TOLERANCE_NS
        assert trace.epoch_ns + row["end"] >= end - TOLERANCE_NS
    for worker in np.unique(trace.tasks["worker"]):
        whole = (trace.tasks["start"] >= 0) & (trace.tasks["end"] >= 0)
        mine = trace.tasks[whole & (trace.tasks["worker"] == worker)]
        order = np.argsort(mine["start"])
        assert (mine["end"][order][:-1] <= mine["start"][order][1:]).all()
    return compared


def test_the_trace_equals_the_log_of_the_kernels(variant: str, opened: Any) -> None:
    program = Program(variant)
    with opened(sim__workers=3) as device:
        trace = program.run(device, trace=4)
    assert trace.lost_total == 0
    assert len(trace.tasks) == TASKS == len(program.log)
    assert check_truth(program, trace) == TASKS
    times = [
        trace.tasks[name] for name in ("submit", "ready", "dispatch", "start", "end", "complete")
    ]
    assert all((time >= 0).all() for time in times)
    for earlier, later in itertools.pairwise(times[1:]):
        assert (earlier <= later).all()
    assert trace.note == "host time on 3 threads, not the chip's"


def test_a_released_task_names_a_producer(variant: str, opened: Any) -> None:
    program = Program(variant)
    with opened(sim__mode="deterministic", sim__seed=3) as device:
        trace = program.run(device, trace=4)
    index_of = {task: index for index, task in program.ids.items()}
    row_of = {int(row["task"]): row for row in trace.tasks}
    released = [row for row in trace.tasks if row["released_by"] >= 0]
    assert released
    for row in released:
        layer, i = divmod(index_of[int(row["task"])], WIDTH)
        producers = {program.ids[(layer - 1) * WIDTH + (i + k) % WIDTH] for k in (0, 1)}
        assert int(row["released_by"]) in producers
        assert all(row_of[producer]["complete"] <= row["ready"] for producer in producers)


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_a_tiny_ring_loses_records_and_counts_them(variant: str, opened: Any, mode: str) -> None:
    program = Program(variant)
    seed = {"sim__mode": mode, "sim__seed": 1}
    with opened(**seed) as device:
        whole = program.run(device, trace=1)
    assert whole.lost_total == 0
    for limit in ({"trace_ring_records": 16}, {"trace_records": 40}):
        with opened(**seed, **limit) as device:
            part = program.run(device, trace=1)
        assert part.lost_total > 0
        assert len(part.records) + part.lost_total == len(whole.records)
        if mode == "threads":
            check_truth(program, part)
        for track in np.unique(part.records["track"]):
            numbers = part.records["number"][part.records["track"] == track]
            assert (np.diff(np.sort(numbers).astype("<i8")) >= 1).all()
    assert len(part.records) == 40


def test_a_seed_reproduces_its_trace(variant: str, opened: Any) -> None:
    traces = []
    for _ in range(2):
        program = Program(variant)
        with opened(sim__mode="deterministic", sim__seed=5) as device:
            traces.append(program.run(device, trace=4))
    assert traces[0].unit == "steps"
    assert traces[0].records.tolist() == traces[1].records.tolist()
    assert "steps" in traces[0].note


def test_each_level_adds_events(variant: str, opened: Any) -> None:
    program = Program(variant)
    with opened(sim__mode="deterministic", sim__seed=3) as device:
        seen = [
            {Event(event) for event in np.unique(program.run(device, trace=level).records["event"])}
            for level in range(1, 5)
        ]
        untraced = device.run(program.graph, *[np.zeros(1) for _ in range(TASKS + 1)])
    assert {Event.SUBMIT, Event.READY, Event.DISPATCH, Event.START, Event.END} <= seen[0]
    assert {Event.COMPLETE, Event.BUILD} <= seen[0]
    assert all(event < 0x10 for event in seen[0])
    assert {Event.COLLECT, Event.FILL} <= seen[1]
    assert all(event < 0x20 for event in seen[1])
    assert all(event < 0x30 for event in seen[2])
    assert {Event.EDGE, Event.RELEASE} <= seen[3]
    assert untraced.trace is None
    assert device.last_trace is None


def test_a_failed_run_keeps_its_trace(tmp_path: Path) -> None:
    @pto_core.kernel(core="aiv")
    def works(a: Any) -> None:
        a += 1

    @pto_core.kernel(core="aiv")
    def fails(a: Any) -> None:
        raise ValueError("wrong")

    def graph(rt: Any, a: Any) -> None:
        first = rt.add_task(works, (a,))
        rt.add_successor(first, rt.add_task(fails, (a,)))

    prefix = tmp_path / "deep" / "failed"
    config = CallConfig(enable_l2_swimlane=1, output_prefix=str(prefix))
    with pto_core.open_device("a2a3sim") as device:
        with pytest.raises(TaskFailedError):
            device.run(graph, np.zeros(1), config=config)
        trace = device.last_trace
    assert trace is not None
    kernels = [trace.kernel_name(kernel) for kernel in trace.tasks["kernel"]]
    assert kernels == ["works", "fails"]
    assert read_trace(prefix.parent).tasks.tolist() == trace.tasks.tolist()


def test_a_late_run_keeps_its_trace() -> None:
    @pto_core.kernel(core="aiv")
    def sleeps(a: Any) -> None:
        time.sleep(0.2)

    def graph(rt: Any, a: Any) -> None:
        for _ in range(100):
            rt.add_task(sleeps, (a,))

    with pto_core.open_device("a2a3sim") as device:
        with pytest.raises(RunTimeoutError):
            device.run(graph, np.zeros(1), timeout_s=0.3, trace=1)
        assert device.last_trace is not None
        assert (device.last_trace.tasks["submit"] >= 0).sum() == 100
        assert (device.last_trace.tasks["start"] >= 0).any()


def test_call_config_writes_the_files(tmp_path: Path, opened: Any, variant: str) -> None:
    program = Program(variant)
    prefix = str(tmp_path / "out" / "step")
    config = CallConfig(enable_l2_swimlane=2, enable_scope_stats=1, output_prefix=prefix)
    with opened() as device:
        program.run(device, config=config)
        trace = program.run(device, config=config)
    again = read_trace(tmp_path / "out" / "step.device0.run2.trace.npz")
    assert again.records.tolist() == trace.records.tolist()
    assert again.tasks.tolist() == trace.tasks.tolist()
    assert (again.kernels, again.note, again.statistics) == (
        trace.kernels,
        trace.note,
        trace.statistics,
    )
    endings = ("trace.npz", "pftrace", "html", "stats.json")
    names = {f"step.device0.run{run}.{ending}" for run in (1, 2) for ending in endings}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


def test_several_runs_are_joined_on_one_clock(opened: Any, variant: str) -> None:
    program = Program(variant)
    with opened() as device:
        parts = [program.run(device, trace=1) for _ in range(3)]
    whole = joined(parts)
    assert len(whole.tasks) == 3 * TASKS
    for run, part in enumerate(parts):
        mine = whole.tasks[whole.tasks["run"] == run]
        assert (mine["start"] + whole.epoch_ns == part.tasks["start"] + part.epoch_ns).all()
    ends = [whole.tasks["end"][whole.tasks["run"] == run].max() for run in range(3)]
    assert ends == sorted(ends)


@pytest.mark.parametrize("level", [-1, 5, "1"])
def test_a_wrong_level_is_refused(level: Any) -> None:
    with (
        pto_core.open_device("a2a3sim") as device,
        pytest.raises(UsageError, match="use an integer from 0 to 4"),
    ):
        device.run(lambda rt: None, trace=level)
