"""Runs with a large fan-in, a large fan-out or many tasks, and runs with slow kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_core import Device, In, InOut, Out, kernel, open_device
from pto_core.errors import CapacityError, DeadlockError

MODES = ("threads", "deterministic")
MIB = 2**20
PAGE = os.sysconf("SC_PAGESIZE")
FAN_IN, FAN_OUT, READERS = 200, 10_000, 65_000
WINDOW, TIMES_LONGER = 64, 1000
GROWTH_BYTES = 2 * MIB
"""The limit is 36 bytes for each task, far less than any record of a task. The figure includes
memory that is touched for the first time, and the history for deadlock reports, of at most 4 MiB
for each ring.
"""
SCOPES_OF_ACCUMULATOR = 500
SLOW_S, SLOW_S_AT_FULL_COUNT = 2.0, 30.0
PROOF_S = 0.050
PROOFS, PROOFS_MAX = 5, 100
"""The minimum and maximum number of attempts. Only the fastest counts; more follow while none was
fast, because the machine may be busy.
"""


@kernel(core="aiv")
def nothing():
    pass


@kernel(core="aiv")
def add_number(source: In, out: Out, number: int):
    out[...] = source[0] + number


@kernel(core="aiv")
def add_up(source: In, out: Out):
    out[...] = source.sum()


@kernel(core="aiv")
def fill(out: Out, number: int):
    out[...] = number


@kernel(core="aiv")
def accumulate(total: InOut, part: In):
    total[...] = total * 3 + part


@kernel(core="aic")
def increment(x: InOut):
    x += 1


def opened(**sizes: Any) -> Device:
    settings = {key.replace("__", "."): value for key, value in sizes.items()}
    return open_device("a2a3sim", runtime="pto2", settings=settings)


def test_a_fan_in_of_two_hundred() -> None:
    parts, total = np.zeros(FAN_IN, np.int64), np.zeros(1, np.int64)

    def graph(rt: Any, parts: InOut, total: InOut) -> None:
        for number in range(FAN_IN):
            rt.submit(fill, parts[number : number + 1], number)
        rt.submit(add_up, parts, total)

    with opened() as device:
        report = device.run(graph, parts, total)
    assert total[0] == sum(range(FAN_IN))
    assert report.statistics["edges"] <= FAN_IN


@pytest.mark.parametrize("mode", MODES)
def test_a_fan_out_of_ten_thousand_and_back(mode: str) -> None:
    """A writer waits for all readers before it, and a reader of its output waits for the writer."""
    source, out = np.zeros(1, np.int64), np.zeros(FAN_OUT, np.int64)
    total = np.zeros(1, np.int64)

    def graph(rt: Any, source: InOut, out: InOut, total: InOut) -> None:
        rt.submit(fill, source, 1)
        for number in range(FAN_OUT):
            rt.submit(add_number, source, out[number : number + 1], number)
        rt.submit(fill, source, 100)
        rt.submit(add_up, out, total)

    with opened(sim__mode=mode) as device:
        device.run(graph, source, out, total, hazards="full")
    np.testing.assert_array_equal(out, 1 + np.arange(FAN_OUT))
    assert (source[0], total[0]) == (100, out.sum())


def readers_then_writer(seen: list[int], readers: int) -> Callable[..., None]:
    @kernel(core="aiv")
    def read_source(source: In):
        seen.append(int(source[0]))

    def graph(rt: Any, source: InOut) -> None:
        for _ in range(readers):
            rt.submit(read_source, source)
        rt.submit(fill, source, 7)

    return graph


def test_a_writer_waits_for_sixty_five_thousand_readers() -> None:
    source, seen = np.full(1, 3, np.int64), []
    with opened() as device:
        device.run(readers_then_writer(seen, READERS), source, hazards="full")
    assert source[0] == 7
    assert seen == [3] * READERS


def test_more_readers_than_the_pool_stores_are_refused_with_the_number() -> None:
    with (
        opened(pto2__dep_pool="1024") as device,
        pytest.raises(CapacityError, match="dependency pool") as caught,
    ):
        device.run(readers_then_writer([], READERS), np.zeros(1), hazards="full")
    assert caught.value.value == READERS + 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


@pytest.mark.parametrize("mode", MODES)
def test_memory_does_not_grow_with_a_graph_longer_than_the_window(mode: str) -> None:
    def graph(rt: Any, data: InOut, tasks: int) -> None:
        for _ in range(tasks // 16):
            with rt.scope():
                for _ in range(8):
                    made = rt.tensor(256, np.int64)
                    rt.submit(fill, made, 1)
                    rt.submit(accumulate, data, made)

    def run(tasks: int) -> int:
        data = np.zeros(256, np.int64)
        with np.errstate(over="ignore"):
            assert device.run(graph, data, tasks).tasks == tasks
        return resident_bytes()

    sizes = {"pto2__task_window": str(WINDOW), "pto2__heap": "64K", "pto2__tensor_map_pool": "256"}
    with opened(sim__mode=mode, **sizes) as device:
        before = run(TIMES_LONGER * WINDOW // 10)
        after = run(TIMES_LONGER * WINDOW)
    assert after - before < GROWTH_BYTES


@pytest.mark.parametrize("hazards", ["raw", "full"])
@pytest.mark.parametrize("mode", MODES)
def test_an_accumulator_lives_across_scopes_in_a_heap_just_large_enough(
    mode: str, hazards: str
) -> None:
    """The outer heap contains only this tensor; the inner heap contains the parts of one scope."""

    def graph(rt: Any, result: InOut) -> None:
        total = rt.tensor(128, np.uint64)
        rt.submit(fill, total, 1)
        for scope in range(SCOPES_OF_ACCUMULATOR):
            with rt.scope():
                for number in (scope, scope + 1):
                    part = rt.tensor(128, np.uint64)
                    rt.submit(fill, part, number)
                    rt.submit(accumulate, total, part)
        with rt.scope():
            rt.submit(accumulate, result, total)

    right = 1
    for scope in range(SCOPES_OF_ACCUMULATOR):
        right = (right * 3 + scope) * 3 + scope + 1
    for threads in (1, 2, 4):
        result = np.zeros(128, np.uint64)
        sizes = {"pto2__heap": "1K,2K,1K,1K", "pto2__task_window": "4,8,4,4"}
        with opened(sim__mode=mode, aicpu_thread_num=threads, **sizes) as device:
            report = device.run(graph, result, hazards=hazards)
        assert (result == right % 2**64).all()
        peaks = [report.statistics[f"ring{ring}_heap_bytes_peak"] for ring in (0, 1)]
        assert peaks == [1024, 2048]


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_kernel_under_a_full_ring_is_never_a_deadlock(
    mode: str, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """The kernel runs for 2 seconds, or for 30 seconds with --full."""
    slow_s = SLOW_S_AT_FULL_COUNT if request.config.getoption("full") else SLOW_S

    @kernel(core="aiv")
    def slow(x: InOut):
        time.sleep(slow_s)
        x += 1

    def graph(rt: Any, x: InOut) -> None:
        for number in range(4):
            with rt.scope():
                rt.submit(slow if number == 0 else increment, x)
                for _ in range(2):
                    rt.submit(increment, x)

    x = np.zeros(1, np.int64)
    with opened(sim__mode=mode, pto2__task_window="4") as device:
        report = device.run(graph, x)
    assert x[0] == 12
    assert report.statistics["blocked_on_tasks"] > 0
    assert report.run_ns >= slow_s * 1e9
    assert "deadlock" not in capfd.readouterr().err


@pytest.mark.parametrize("mode", MODES)
def test_a_deadlock_is_proven_before_the_orchestration_continues(
    mode: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The deadlock is reported within 50 ms of the last kernel; then the device runs a graph."""
    ended: list[int] = []
    delays: list[float] = []

    @kernel(core="aiv")
    def last():
        time.sleep(0.02)
        ended.append(time.monotonic_ns())

    def graph(rt: Any) -> None:
        for _ in range(4):
            rt.submit(last)
        delays.append((time.monotonic_ns() - ended[-1]) / 1e9)

    with opened(sim__mode=mode, pto2__task_window="4") as device:
        while len(delays) < PROOFS or (min(delays) >= PROOF_S and len(delays) < PROOFS_MAX):
            with pytest.raises(DeadlockError):
                device.run(graph)
            assert capfd.readouterr().err == "", "the error is printed and raised"
            assert device.run(lambda rt: rt.submit(nothing)).tasks == 1
    print("seconds to the proof", delays)
    assert min(delays) < PROOF_S
