"""A trace of Workers for the tests of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from pto_core.user_ranges import Range
from pto_insight.traces import Event, Trace
from pto_insight.traces.records import RECORD, TASK, WORKER_RECORD, WORKER_TASK
from pto_insight.traces.worker_trace import WorkerTrace

EPOCH = 1_000_000


@pytest.fixture
def pod() -> WorkerTrace:
    """A pod with a host, which has a chip: task 1 of the pod runs after task 0 in another child."""
    device = Trace(
        np.array([(60, 69, 0, 0, 0, Event.BUILD, 0, 0)], RECORD),
        np.array([(0, 0, 3, -1, 2, 0, 61, 62, 63, 64, 66, 67, -1)], TASK),
        *(("load",), {}, 2, "ns", EPOCH, 1, "a2a3sim", "x"),
    )
    tasks = [
        (0, 0, 0, 0, 0, -1, 2, 21, 0, 5, 6, 7, 10, 40, 45, -1),
        (0, 0, 1, 1, 0, 0, 1, 22, 0, 8, 45, 46, 50, 80, 85, -1),
        (1, 0, 0, 0, 0, -1, 3, 23, 0, 55, 56, 57, 58, 70, 75, -1),
    ]
    records = [
        (0, 90, 0, 0, 0, Event.BUILD, 0, 0, 0),
        (7, 9, 0, 0, 1, Event.FILL, 1, 0, 0),
        (11, 12, 0, 1, 2, Event.REQUIRE, 5, 0, 0),
    ]
    return WorkerTrace(
        paths=("L4", "L4/host0", "L4/host1", "L4/host0/chip0"),
        children={"L4": ("L4/host0", "L4/host1"), "L4/host0": ("L4/host0/chip0",)},
        pids={"L4": 20, "L4/host0": 22},
        tasks=np.array(tasks, WORKER_TASK),
        records=np.array(records, WORKER_RECORD),
        callables=("near", "far"),
        ranges=(
            Range("all", "L4", "MainThread", 0, 0, 95),
            Range("part", "L4", "MainThread", 1, 0, 50),
            Range("empty", "L4", "MainThread", 1, 60, 60),
        ),
        devices={"L4/host0/chip0": device},
        lost={},
        missing=(),
        clocks={},
        epoch_ns=EPOCH,
    )


DrawArrows = Callable[[Iterable[tuple[Any, Any]]], list[tuple[Any, Any]]]


@pytest.fixture
def draw_arrows() -> DrawArrows:
    """Return a function that draws arrows as Perfetto does.

    It takes the name and the event of each slice and instant, in the order of the file. The first
    event with a flow begins it, the next one continues it, and one that terminates it ends it.
    """

    def draw(events: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        at: dict[int, Any] = {}
        arrows = []
        for name, event in events:
            for flow in event.flow_ids:
                if flow in at:
                    arrows.append((at[flow], name))
                at[flow] = name
            for flow in event.terminating_flow_ids:
                if flow in at:
                    arrows.append((at.pop(flow), name))
        return arrows

    return draw
