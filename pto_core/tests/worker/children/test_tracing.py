"""The trace of a child, with the requests of its parent, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import CallConfig, ChipCallable, Out, kernel, open_device
from pto_core.errors import UsageError
from pto_core.worker.children.tracing import ChipTracing, TraceOperations
from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.worker_parts import unpacked

TASKS = 5


@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7


def on_chip(rt: Any, out: Out) -> None:
    with pto_core.range("on the chip"):
        for row in range(TASKS):
            rt.submit(fill, out[row])


@pytest.fixture
def opened() -> Iterator[Any]:
    """Open devices with settings; they are closed at the end of the test."""
    devices = []

    def device(**settings: Any) -> Any:
        devices.append(open_device("a2a3sim", runtime="tensormap_and_ringbuffer", **settings))
        return devices[-1]

    yield device
    for one in devices:
        one.close()


def run(device: Any) -> Any:
    return device.run(ChipCallable(on_chip), np.zeros((TASKS, 4), "float32"), trace=1)


def fetched(operations: Any) -> WorkerTraceData:
    length, content = operations["trace_end"](), b""
    while len(content) < length:
        content += operations["trace_piece"](len(content))
    return unpacked(content)


def test_a_trace_that_begins_twice_has_each_range_once() -> None:
    operations = TraceOperations("L3/sub0", 1 << 16, None).operations
    operations["trace_begin"](1)
    with pto_core.range("before"):
        pass
    operations["trace_begin"](1)
    with pto_core.range("inside"):
        pass
    assert [one.name for one in fetched(operations).ranges] == ["inside"]


def test_the_last_piece_frees_the_trace() -> None:
    operations = TraceOperations("L3/sub0", 512, None).operations
    operations["trace_begin"](1)
    for number in range(20):
        with pto_core.range(f"range {number}"):
            pass
    assert len(fetched(operations).ranges) == 20
    assert operations["trace_piece"](0) == b""


def test_the_end_frees_the_traces_of_a_chip(opened: Any) -> None:
    device = opened()
    tracing = ChipTracing("L3/chip0", device)
    tracing.begin(1)
    assert run(device).trace is None, "a trace is converted at the end of the block"
    run(device)
    assert len(tracing.end().devices["L3/chip0"].tasks) == 2 * TASKS
    tracing.begin(1)
    assert tracing.end().devices == {}
    assert run(device).trace is not None


def test_a_task_after_the_window_is_not_traced(opened: Any, tmp_path: Path) -> None:
    device = opened()
    tracing = ChipTracing("L3/chip0", device)
    config = CallConfig(enable_l2_swimlane=1, output_prefix=str(tmp_path / "task"))

    def run_task() -> None:
        out = np.zeros((TASKS, 4), "float32")
        device.run(ChipCallable(on_chip), out, config=config, trace=tracing.level_of_task())

    tracing.begin(1, (0, 1))
    run_task()
    assert tracing.end().devices == {}
    assert list(tmp_path.iterdir()) == []
    run_task()
    assert (tmp_path / "task.device0.run2.html").exists()


def test_a_failing_task_does_not_convert_its_trace(opened: Any) -> None:
    device = opened()
    tracing = ChipTracing("L3/chip0", device)
    tracing.begin(1)

    def fails(rt: Any, out: Out) -> None:
        rt.submit(fill, out[0])
        raise ValueError("after a submit")

    with pytest.raises(ValueError, match="after a submit"):
        device.run(ChipCallable(fails), np.zeros((TASKS, 4), "float32"), trace=1)
    assert device.last_trace is None, "a trace is converted at the end of the block"
    assert len(tracing.end().devices["L3/chip0"].tasks) == 1


def test_the_traces_of_a_chip_have_a_limit_together(opened: Any) -> None:
    device = opened()
    tracing = ChipTracing("L3/chip0", device)
    tracing.begin(1)
    run(device)
    size = len(tracing.end().devices["L3/chip0"].records)
    device = opened(trace_records=2 * size + size // 2)
    tracing = ChipTracing("L3/chip0", device)
    tracing.begin(1)
    for _ in range(5):
        run(device)
    trace = tracing.end()
    assert len(trace.devices["L3/chip0"].tasks) == 2 * TASKS
    assert 2 * size < trace.lost["L3/chip0 device"] <= 3 * size


def test_a_refused_run_leaves_no_trace(opened: Any) -> None:
    device = opened()
    assert run(device).trace is not None
    with pytest.raises(UsageError, match="trace"):
        device.run(ChipCallable(on_chip), np.zeros((TASKS, 4), "float32"), trace=7)
    assert device.last_trace is None


def test_a_chip_in_deterministic_mode_is_not_on_the_timeline(opened: Any) -> None:
    device = opened(sim__mode="deterministic")
    tracing = ChipTracing("L3/chip0", device)
    tracing.begin(1)
    run(device)
    trace = tracing.end()
    assert trace.devices["L3/chip0"].unit == "steps"
    assert (trace.timed_devices, trace.ranges) == ({}, ())
    (text,) = trace.missing
    assert text.startswith("L3/chip0: its device is in deterministic mode")
