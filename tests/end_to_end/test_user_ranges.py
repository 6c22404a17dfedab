"""Ranges of a Python orchestration: the trace equals what the orchestration logged."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import InOut
from pto_insight.traces import Trace
from pto_insight.traces.records import HOST

LONG = "a name of more than sixteen bytes"
TOLERANCE_NS = 50_000
"""The error of a conversion between two clocks."""


@pto_core.kernel(core="aiv")
def double(x: InOut) -> None:
    with pto_core.range("in a kernel"):
        x *= 2


class Program:
    """An orchestration that logs the time before and after the begin and the end of each range."""

    def __init__(self) -> None:
        self.log: dict[str, tuple[int, int, int, int]] = {}

    def marked(self, rt: Any, x: Any, name: str, depth: int) -> None:
        times = [time.monotonic_ns()]
        with pto_core.range(name):
            times.append(time.monotonic_ns())
            rt.submit(double, x)
            if depth:
                self.marked(rt, x, f"{name} {depth}", depth - 1)
            times.append(time.monotonic_ns())
        before, begun, ending, ended = (*times, time.monotonic_ns())
        self.log[name] = (before, begun, ending, ended)

    def __call__(self, rt: Any, x: InOut) -> None:
        beside = threading.Thread(target=self.in_a_thread)
        beside.start()
        self.marked(rt, x, "outer", 2)
        self.marked(rt, x, LONG, 0)
        self.marked(rt, x, "", 0)
        beside.join()

    def in_a_thread(self) -> None:
        with pto_core.range("beside"):
            pass


def check(trace: Trace, program: Program) -> None:
    found = {trace.range_names[row["name"]]: row for row in trace.ranges}
    assert set(found) == set(program.log)
    for name, (before, begun, ending, ended) in program.log.items():
        row = found[name]
        assert row["track"] == HOST
        assert before <= trace.epoch_ns + row["start"] <= begun
        assert ending <= trace.epoch_ns + row["end"] <= ended


def test_ranges_equal_the_log_of_the_orchestration() -> None:
    program = Program()
    with (
        pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device,
        pto_core.range("around"),
    ):
        trace = device.run(program.__call__, np.ones(4), trace=1).trace
        assert trace is not None
        check(trace, program)
        submits = np.sort(trace.tasks["submit"])
        outer = trace.ranges[trace.ranges["name"] == trace.range_names.index("outer")][0]
        assert outer["start"] <= submits[0] + TOLERANCE_NS
        assert submits[2] <= outer["end"] + TOLERANCE_NS
        assert device.run(program.__call__, np.ones(4)).trace is None


def test_ranges_of_a_run_that_fails() -> None:
    program = Program()

    def fails(rt: Any, x: InOut) -> None:
        program(rt, x)
        raise ValueError("for a trace")

    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        with pytest.raises(ValueError, match="for a trace"):
            device.run(fails, np.ones(4), trace=1)
        assert device.last_trace is not None
        check(device.last_trace, program)


def test_ranges_are_in_no_trace_in_steps() -> None:
    with pto_core.open_device(
        "a2a3sim", runtime="tensormap_and_ringbuffer", sim__mode="deterministic"
    ) as device:
        trace = device.run(Program().__call__, np.ones(4), trace=1).trace
    assert trace is not None
    assert len(trace.ranges) == 0
