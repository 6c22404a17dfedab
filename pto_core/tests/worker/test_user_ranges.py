"""Ranges and their recorders, which several devices, threads and traces use at a time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import pto_core
from pto_core import Out, open_device
from pto_core.user_ranges import RangeRecorder
from pto_insight.traces.lanes import lanes
from pto_insight.traces.worker_parts import of_child
from pto_insight.traces.worker_trace import WorkerTrace

ROUNDS = 100_000


def test_an_object_that_is_entered_again_marks_both_parts() -> None:
    recorder = RangeRecorder()
    recorder.begin()
    again = pto_core.range("again")
    with again, again:
        pass
    with pto_core.range("later"):
        pass
    inner, outer, later = recorder.end("L3")
    assert [one.depth for one in (inner, outer, later)] == [1, 0, 0]
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_ranges_outside_of_the_window_and_beyond_the_limit_are_dropped() -> None:
    thread = threading.current_thread()
    recorder = RangeRecorder(ranges_max=2)
    first = time.monotonic_ns() + 10**10
    last = first + 10**10
    recorder.begin((first, last))
    for start, end in ((first - 2, first - 1), (first - 1, first), (last - 1, last + 1)):
        recorder.add("near", thread, 0, start, end)
    for start in (last, last + 1):
        recorder.add("after", thread, 0, start, start + 1)
    assert recorder.lost == 0
    recorder.add("one more", thread, 0, first, first + 1)
    assert recorder.lost == 1
    assert [(one.start, one.end) for one in recorder.end("L3")] == [
        (first - 1, first),
        (last - 1, last + 1),
    ]
    recorder.begin()
    assert recorder.lost == 0
    assert recorder.end("L3") == ()


def test_threads_of_one_name_have_lanes_of_their_own() -> None:
    recorder = RangeRecorder()
    recorder.begin()
    is_in_long, is_after_short = threading.Event(), threading.Event()

    def long() -> None:
        with pto_core.range("long"):
            is_in_long.set()
            is_after_short.wait()

    def short() -> None:
        is_in_long.wait()
        with pto_core.range("short"):
            pass
        is_after_short.set()

    threads = [threading.Thread(target=one, name="reader") for one in (long, short)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = recorder.end("L3")
    drawn = lanes(WorkerTrace.of(of_child("L3", found, {}, 0)))
    names = {lane.name: [one.name for one in lane.slices] for lane in drawn if lane.slices}
    assert names == {f"ranges of reader ({one.thread_id})": [one.name] for one in found}
    assert len(names) == 2


def test_a_recorder_that_begins_again_drops_what_it_had() -> None:
    recorder = RangeRecorder()
    for _ in range(2):
        recorder.begin()
        with pto_core.range("once"):
            pass
    assert [one.name for one in recorder.end("L3")] == ["once"]
    with pto_core.range("after"):
        pass
    assert recorder.end("L3") == ()


@pytest.fixture
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_frequent_switches")
def test_recorders_of_several_threads_do_not_lose_each_other() -> None:
    found: list[str] = []

    def trace_often() -> None:
        recorder = RangeRecorder(own_thread=True)
        for _ in range(ROUNDS):
            recorder.begin()
            with pto_core.range("kept"):
                pass
            found.extend(one.name for one in recorder.end(""))

    threads = [threading.Thread(target=trace_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["kept"] * (2 * ROUNDS)


def marked(rt: object, out: Out) -> None:
    for number in range(5):
        with pto_core.range(f"range {number}"):
            pass


def test_a_run_without_a_trace_records_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = RangeRecorder.begin

    def counted(self: RangeRecorder) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(RangeRecorder, "begin", counted)
    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        device.run(marked, np.zeros(4))
        assert begun == []
        device.run(marked, np.zeros(4), trace=1)
        assert len(begun) == 1


def test_ranges_above_the_limit_are_counted() -> None:
    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer", trace_records=2) as device:
        trace = device.run(marked, np.zeros(4), trace=1).trace
    assert trace is not None
    assert trace.range_names == ("range 0", "range 1")
    assert trace.lost["ranges"] == 3
