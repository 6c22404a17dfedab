"""Parts of a trace: copies, ranges, arguments, the use of rings, the window, last records."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, CoreCallable, In, InOut, KernelSource, Out, kernel
from pto_core.errors import DeadlockError, TaskFailedError, UsageError
from pto_core.kernels import OrchestrationSource
from pto_insight.traces import Event, Trace
from pto_insight.traces.analysis import kernel_rows, limits, recorded_counters, span
from pto_insight.traces.files import read_trace
from pto_insight.traces.page import task_columns
from pto_insight.traces.pftrace import pftrace

VARIANTS = ("host_build_graph", "aicpu_build_graph", "tensormap_and_ringbuffer")
LONG = "a name of more than sixteen bytes"
KERNEL = 'extern "C" void kernel_entry(long*) {}\n'
GRAPHS = {
    "host_build_graph": '#include "runtime.h"\nextern "C" int build(Runtime* rt, uint64_t*, int) {',
    "aicpu_build_graph": '#include "runtime.h"\nextern "C" int build(Runtime* rt) {',
    "tensormap_and_ringbuffer": '#include "pto_orchestration_api.h"\n'
    'extern "C" int aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t*, int) {',
}
SUBMITS = {
    "host_build_graph": "uint64_t one = 1; rt->add_task(&one, 1, 0, CoreType::AIV);",
    "aicpu_build_graph": "uint64_t one = 1;"
    "rt->aicpu_build_api.publish_task(rt, rt->add_task(&one, 1, 0, CoreType::AIV, 0));",
    "tensormap_and_ringbuffer": "PTOParam one[] = {make_scalar_param(1)};"
    "pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, one, 1);",
}


@pytest.fixture
def in_cpp(tmp_path: Path) -> Callable[[str, str], ChipCallable]:
    """Return a function that makes an orchestration; ``SUBMIT`` in its body adds a task."""

    def make(variant: str, body: str) -> ChipCallable:
        kernel, graph = tmp_path / "empty.cpp", tmp_path / f"{variant}.cpp"
        kernel.write_text(KERNEL)
        body = body.replace("SUBMIT", f"{{ {SUBMITS[variant]} }}")
        graph.write_text(f"{GRAPHS[variant]}\n{body}\nreturn 0; }}\n")
        name = "aicpu_orchestration_entry" if "aicpu_orch" in GRAPHS[variant] else "build"
        children = {0: CoreCallable(KernelSource(kernel), "aiv")}
        return ChipCallable(OrchestrationSource(graph, name), children)

    return make


def traced(variant: str, chip: Any, *args: Any, level: int = 1, **settings: Any) -> Trace:
    with pto_core.open_device("a2a3sim", runtime=variant, settings=settings) as device:
        trace = device.run(chip, *args, trace=level).trace
    assert trace is not None
    return trace


@pytest.mark.parametrize("variant", VARIANTS)
def test_ranges_of_an_orchestration(variant: str, in_cpp: Any) -> None:
    body = f"""
      pto_range_begin(rt, "outer");
      SUBMIT
      pto_range_begin(rt, "{LONG}");
      SUBMIT
      pto_range_end(rt);
      pto_range_end(rt);
      pto_range_end(rt);
      pto_range_begin(rt, "");
      SUBMIT
    """
    trace = traced(variant, in_cpp(variant, body))
    assert [trace.range_names[row["name"]] for row in trace.ranges] == ["outer", LONG, ""]
    outer, inner, last = trace.ranges.tolist()
    assert outer[2] <= inner[2] <= inner[3] <= outer[3] <= last[2] <= last[3]
    submits = np.sort(trace.tasks["submit"])
    for submit, (_, _, begin, end) in zip(submits, (outer, inner, last), strict=True):
        assert begin <= submit <= end
    assert submits[0] <= inner[2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_ranges_without_a_trace_do_nothing(variant: str, in_cpp: Any) -> None:
    chip = in_cpp(variant, 'pto_range_begin(rt, "x"); SUBMIT pto_range_end(rt);')
    with pto_core.open_device("a2a3sim", runtime=variant) as device:
        assert device.run(chip).tasks == 1


@pto_core.kernel(core="aiv")
def add(x: In, y: In, out: Out) -> None:
    np.add(x, y, out=out)


@pto_core.kernel(core="aiv")
def double(x: InOut) -> None:
    x *= 2


def graph(rt: Any, a: In, b: In, f: Out) -> None:
    rt.submit(add, a, b, f)  # LINE
    c = rt.tensor((8, 4), "float32")
    rt.submit(add, a[8:], b[:8], c)
    rt.submit(double, c)


LINE = next(
    number
    for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
    if text.endswith("# LINE")
)


def arrays() -> tuple[Any, Any, Any]:
    return tuple(np.ones((16, 4), np.float32) for _ in range(3))  # type: ignore[return-value]


def test_tasks_have_lines_arguments_and_bytes() -> None:
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        trace = device.run(graph, *arrays(), trace=1, accesses=True).trace
    assert trace is not None
    assert trace.details is not None
    details = trace.details
    tasks = trace.tasks[np.argsort(trace.tasks["submit"])]
    submits = details.submits[details.rows(tasks["task"])]
    lines = [details.places[place] for place in submits["place"]]
    assert lines == [f"test_trace_parts.py:{LINE + n}" for n in (0, 2, 3)]
    assert submits["bytes"].tolist() == [3 * 256, 3 * 128, 2 * 128]
    rows = [details.arguments[one["first"] : one["first"] + one["count"]] for one in submits]
    texts = [[details.texts[argument["text"]] for argument in row] for row in rows]
    assert texts[0] == ["INPUT float32 16 x 4", "INPUT float32 16 x 4", "OUTPUT float32 16 x 4"]
    assert texts[1] == ["INPUT float32 8 x 4", "INPUT float32 8 x 4", "OUTPUT float32 8 x 4"]
    assert texts[2] == ["INOUT float32 8 x 4"]
    assert [details.buffers[argument["buffer"]] for argument in rows[0]] == ["a", "b", "f"]
    assert rows[1]["offset"].tolist() == [32, 0, 0]
    assert rows[2]["owner"].tolist() == [tasks["task"][1]]
    rates = {row.name: row for row in kernel_rows(trace)}
    assert rates["add"].gb_per_s == pytest.approx(3 * 384 / rates["add"].total)
    assert "GB/s" in trace.table()


def test_copies_are_in_the_trace() -> None:
    trace = traced("tensormap_and_ringbuffer", graph, *arrays())
    copies = {Event(row["event"]): row for row in trace.records if row["event"] in (0x09, 0x0A)}
    assert {event: int(row["b"]) for event, row in copies.items()} == {
        Event.COPY_IN: 2 * 256,
        Event.COPY_OUT: 256,
    }
    into, out = copies[Event.COPY_IN], copies[Event.COPY_OUT]
    assert into["start"] < into["end"] <= trace.tasks["submit"].min() + 50_000
    assert trace.tasks["end"].max() <= out["start"] + 50_000 < out["end"] + 50_000
    begin, end = span(trace)
    assert begin <= into["start"] < out["end"] <= end
    assert limits(trace)["copies"] > 0


def test_copies_of_a_host_orchestration_are_in_the_trace(in_cpp: Any) -> None:
    body = """
      static int host[1000];
      void* device = rt->host_api.device_malloc(sizeof host);
      rt->host_api.copy_to_device(device, host, sizeof host);
      rt->record_tensor_pair(host, device, 400);
      SUBMIT
    """
    trace = traced("host_build_graph", in_cpp("host_build_graph", body))
    found = {Event(row["event"]): int(row["b"]) for row in trace.records}
    assert (found[Event.COPY_IN], found[Event.COPY_OUT]) == (4000, 400)


def test_the_use_of_the_rings_is_recorded_from_level_2() -> None:
    def scoped(rt: Any, a: In, b: In, f: Out) -> None:
        with rt.scope():
            for _ in range(3):
                rt.submit(add, a, b, rt.tensor((16, 4), "float32"))

    assert recorded_counters(traced("tensormap_and_ringbuffer", scoped, *arrays())) == {}
    found = recorded_counters(traced("tensormap_and_ringbuffer", scoped, *arrays(), level=2))
    assert list(found) == ["ring 1, tasks", "ring 1, heap bytes"]
    assert [values.tolist() for _, values in found.values()] == [
        [1, 2, 3, 0],
        [1024, 2048, 3072, 0],
    ]


def test_a_window_keeps_the_records_inside_it() -> None:
    starts = []

    @pto_core.kernel(core="aiv")
    def sleeps(x: InOut) -> None:
        starts.append(time.monotonic_ns())
        time.sleep(0.02)

    def chain(rt: Any, x: InOut) -> None:
        for _ in range(30):
            rt.submit(sleeps, x)

    window = {"trace_after_s": 0.2, "trace_for_s": 0.2}
    begin = time.monotonic_ns()
    trace = traced("tensormap_and_ringbuffer", chain, np.zeros(1), **window)
    assert trace.lost_total == 0
    times = trace.epoch_ns + trace.tasks["start"][trace.tasks["start"] >= 0]
    assert 3 <= len(times) < len(starts) == 30
    assert times.min() >= begin + 0.2e9
    # The end of the window is as late as the thread that observes it.
    assert (np.abs(np.array(starts)[:, None] - times).min(axis=0) < 1e6).all()
    assert not (trace.records["event"] == Event.SUBMIT).any()


def fails(rt: Any, x: InOut) -> None:
    for _ in range(200):
        rt.submit(double, x)
    rt.submit(raises, x)


@pto_core.kernel(core="aiv")
def raises(x: InOut) -> None:
    raise ValueError("wrong")


def test_a_flight_recorder_writes_the_last_records_of_a_failed_run(tmp_path: Path) -> None:
    prefix = tmp_path / "deep" / "last"
    settings = {"flight_recorder": prefix, "trace_ring_records": 16}
    with pto_core.open_device(
        "a2a3sim", runtime="tensormap_and_ringbuffer", settings=settings
    ) as device:
        device.run(graph, *arrays())
        assert device.last_trace is None
        assert list(prefix.parent.iterdir()) == []
        with pytest.raises(TaskFailedError) as raised:
            device.run(fails, np.zeros(1))
        again = device.last_trace
    assert "the last records of each thread are in" in raised.value.__notes__[-1]
    trace = read_trace(prefix.parent)
    assert again is not None
    assert trace.records.tolist() == again.records.tolist()
    assert trace.lost_total == 0
    names = [trace.kernel_name(kernel) for kernel in trace.tasks["kernel"]]
    assert names[-1] == "raises"
    for track in trace.tracks:
        numbers = np.sort(trace.records["number"][trace.records["track"] == track])
        assert len(numbers) <= 16
        assert (np.diff(numbers) == 1).all(), "these are the last records, without a gap"
    workers = trace.records[trace.records["event"] == Event.START]
    assert workers["number"].max() > 16
    assert {path.suffix for path in prefix.parent.iterdir()} == {".npz", ".pftrace", ".html"}


def test_a_deadlock_leaves_the_last_records(tmp_path: Path) -> None:
    def deadlocks(rt: Any, x: InOut) -> None:
        for _ in range(8):
            rt.submit(double, x)

    settings = {"flight_recorder": tmp_path / "last", "pto2.task_window": 4}
    with (
        pto_core.open_device(
            "a2a3sim", runtime="tensormap_and_ringbuffer", settings=settings
        ) as device,
        pytest.raises(DeadlockError),
    ):
        device.run(deadlocks, np.zeros(1))
    tasks = read_trace(tmp_path).tasks
    assert (tasks["submit"] >= 0).sum() == 3
    assert (tasks["end"] >= 0).sum() == 3


CRASHES = """
import os, signal
import numpy as np
from pto_core import InOut, kernel, open_device

@kernel(core="aiv")
def works(x: InOut):
    x += 1

@kernel(core="aiv")
def dies(x: InOut):
    os.kill(os.getpid(), signal.SIGKILL)

def graph(rt, x: InOut):
    for _ in range(100):
        rt.submit(works, x)
    rt.submit(dies, x)

with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
    device.run(graph, np.zeros(1))
"""


def test_a_program_that_crashes_leaves_a_file_of_last_records(tmp_path: Path) -> None:
    environment = os.environ | {
        "PTO_FLIGHT_RECORDER": str(tmp_path / "last"),
        "PTO_TRACE_RING_RECORDS": "16",
    }
    done = subprocess.run([sys.executable, "-c", CRASHES], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    trace = read_trace(tmp_path / "last.device0.flight")
    last = trace.tasks[-1]
    assert trace.kernel_name(last["kernel"]) == "kernel 1", "names of Python kernels are lost"
    assert (last["start"] >= 0, last["end"]) == (True, -1)
    ended = trace.tasks["end"][:-1]
    assert 0 < (ended >= 0).sum() <= 16
    assert trace.records["number"].max() > 100
    assert "kernel 0" in trace.table()


def test_files_show_the_numbers_of_tasks_that_graphs_have() -> None:
    """The runtime numbers the tasks of each ring; a scope selects the ring."""

    @kernel(core="aiv")
    def outer(x: InOut) -> None:
        pass

    @kernel(core="aiv")
    def inner(x: InOut) -> None:
        pass

    def graph(rt: Any, x: InOut) -> None:
        for _ in range(3):
            rt.submit(outer, x)
            with rt.scope():
                rt.submit(inner, x)

    x = np.zeros(1)
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        trace = device.run(graph, x, trace=1, accesses=True).trace
        made = device.graph(graph, x)
    assert trace is not None
    columns = task_columns(trace)
    numbers = np.frombuffer(base64.b64decode(columns["task"][1]), "<f8").astype(int).tolist()
    assert numbers == [0, 1, 2, 3, 4, 5], "each task waits for the one before it"
    assert sorted(trace.tasks["task"]) != numbers
    for number, task in zip(numbers, trace.tasks, strict=True):
        assert made.task(number).kernel == trace.kernel_name(task["kernel"])
    content = pftrace(trace)
    for number in numbers:
        assert b"\x52\x04task\x20" + bytes([number]) in content
    without = replace(trace, details=None)
    assert (without.task_numbers(trace.tasks["task"]) == trace.tasks["task"]).all()


def test_a_flight_recorder_without_a_folder_is_an_error() -> None:
    with pto_core.open_device("a2a3sim") as device:
        device.tracing.flight_recorder = Path("/dev/null/x")
        with pytest.raises(UsageError, match="/dev/null cannot be written"):
            device.run(lambda rt: None)


def test_another_file_is_no_flight_recorder(tmp_path: Path) -> None:
    other = tmp_path / "x.flight"
    for content in (b"", b"PTOTRACE", bytes(100_000)):
        other.write_bytes(content)
        with pytest.raises(UsageError, match="not the file of a flight recorder"):
            read_trace(other)


@kernel(core="aiv")
def sleep(out: Out):
    time.sleep(0.05)
    out[...] = 1


STEPS = {"sim.mode": "deterministic"}


def test_a_kernel_that_waits_has_a_small_processor_time():
    def graph(rt, out: Out):
        rt.submit(sleep, out)

    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        (task,) = device.run(graph, np.zeros(4), trace=3).trace.tasks
        assert task["end"] - task["start"] >= 50_000_000
        assert 0 < task["processor"] < 25_000_000
        (task,) = device.run(graph, np.zeros(4), trace=2).trace.tasks
        assert task["processor"] == -1
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer", **STEPS) as device:
        (task,) = device.run(graph, np.zeros(4), trace=3).trace.tasks
        assert task["processor"] == -1
