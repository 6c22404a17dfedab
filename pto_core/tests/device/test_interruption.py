"""Ctrl-C and time limits are always noticed; if kernels return, the device remains usable."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, Device, kernel
from pto_core.errors import DeviceLostError, RunTimeoutError, TaskTimeoutError, UsageError
from pto_core.kernels import OrchestrationSource


@kernel(core="aiv")
def nothing(*args):
    pass


def one_task(rt):
    rt.publish(rt.add_task(nothing, ()))


class Gate:
    """Blocks a kernel until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()

    def graph(self, rt, *args):
        @kernel(core="aiv")
        def wait_at_gate(*values):
            self.entered.set()
            self.opened.wait()

        rt.publish(rt.add_task(wait_at_gate, args))


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def test_ctrl_c_during_the_wait(device: Device) -> None:
    released = threading.Event()

    @kernel(core="aiv")
    def long_kernel():
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(timeout=0.3)

    with pytest.raises(KeyboardInterrupt):
        device.run(lambda rt: rt.publish(rt.add_task(long_kernel, ())))
    assert not device.is_lost
    assert device.run(one_task).tasks == 1


def test_another_thread_interrupts_a_run(device: Device) -> None:
    device.interrupt()  # without a run, it does nothing

    released = threading.Event()

    @kernel(core="aiv")
    def interrupt():
        device.interrupt()
        released.wait(timeout=0.3)

    with pytest.raises(KeyboardInterrupt):
        device.run(lambda rt: rt.publish(rt.add_task(interrupt, ())))
    assert not device.is_lost
    assert device.run(one_task).tasks == 1


def test_ctrl_c_in_the_orchestration(device: Device) -> None:
    def graph(rt):
        one_task(rt)
        os.kill(os.getpid(), signal.SIGINT)
        one_task(rt)

    with pytest.raises(KeyboardInterrupt):
        device.run(graph)
    assert device.run(one_task).tasks == 1


def test_another_signal_handler_may_raise_too(device: Device) -> None:
    class Alarm(Exception):
        pass

    def handle(*_):
        raise Alarm

    @kernel(core="aiv")
    def ring():
        os.kill(os.getpid(), signal.SIGUSR1)

    def many(rt):
        for _ in range(20000):
            rt.publish(rt.add_task(ring, ()))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(Alarm):
            # The wait is so long that the signal arrives during the wait and ends it.
            device.run(many, timeout_s=60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert device.run(one_task).tasks == 1


def test_a_run_that_takes_too_long(device: Device) -> None:
    turns = threading.Event()

    @kernel(core="aiv")
    def slow():
        turns.wait(timeout=0.02)

    def graph(rt):
        tasks = [rt.add_task(slow, ()) for _ in range(1000)]
        for earlier, later in itertools.pairwise(tasks):
            rt.add_successor(earlier, later)
        for task in tasks:
            rt.publish(task)

    with pytest.raises(RunTimeoutError, match=r"limit of 0\.2 s") as caught:
        device.run(graph, timeout_s=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.timeout_s == 0.2
    assert device.run(one_task).tasks == 1


def test_a_task_that_takes_too_long(runtime: str) -> None:
    slow_gate = threading.Event()

    @kernel(core="aiv")
    def slow():
        slow_gate.wait(timeout=2)

    def graph(rt):
        for one in (nothing, slow):
            rt.publish(rt.add_task(one, ()))

    with pto_core.open_device("a2a3sim", runtime=runtime, task_timeout_s=1) as device:
        expected = r"'slow' \(func_id 1\), task 1, on AIV \d+ did not return within 1 s"
        with pytest.raises(TaskTimeoutError, match=expected) as caught:
            device.run(graph)
        assert not device.is_lost
        assert (caught.value.kernel, caught.value.task) == ("slow", 1)
        (state,) = caught.value.__notes__
        ended = f"state when the run was ended: {runtime}: 2 tasks, 1 completed, 1 on cores"
        assert state.startswith(ended)
        assert re.search(r"\n  kernel 'slow' .*, task 1, on AIV \d+, for [12]\.\d s$", state)
        assert device.run(one_task).tasks == 1


def test_a_kernel_that_never_returns_loses_the_device(runtime: str, gate: Gate) -> None:
    with pto_core.open_device("a2a3sim", runtime=runtime) as device:
        with pytest.raises(TaskTimeoutError, match="device is lost") as caught:
            device.run(gate.graph, np.zeros(3), timeout_s=2)
        error = caught.value
        assert (error.kernel, error.task) == ("wait_at_gate", 0)
        assert error.core is not None
        assert device.is_lost
        assert [one.kernel for one in device.activity()] == ["wait_at_gate"]
        for call in (lambda: device.run(one_task), lambda: device.empty(3)):
            with pytest.raises(DeviceLostError, match="close it and open another"):
                call()
    with pto_core.open_device("a2a3sim", runtime=runtime) as another:
        assert another.run(one_task).tasks == 1


def test_ctrl_c_with_a_kernel_that_never_returns(runtime: str, gate: Gate) -> None:
    with pto_core.open_device("a2a3sim", runtime=runtime) as device:

        @kernel(core="aiv")
        def interrupt_and_wait():
            os.kill(os.getpid(), signal.SIGINT)
            gate.opened.wait()

        with pytest.raises(KeyboardInterrupt) as caught:
            device.run(lambda rt: rt.publish(rt.add_task(interrupt_and_wait, ())))
        assert "'interrupt_and_wait' (func_id 0), task 0, on AIV" in caught.value.__notes__[0]
        assert device.is_lost


def test_activity_from_another_thread(device: Device, gate: Gate) -> None:
    seen = []

    def watch():
        gate.entered.wait()
        seen.extend(device.activity())
        gate.opened.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    device.run(gate.graph)
    watcher.join()
    assert [(one.kernel, one.task) for one in seen] == [("wait_at_gate", 0)]
    assert device.activity() == []


def test_a_call_of_rt_ends_a_late_orchestration(device: Device) -> None:
    def endless(rt):
        while True:
            rt.publish(rt.add_task(nothing, ()))

    with pytest.raises(RunTimeoutError, match=r"limit of 0\.05 s") as caught:
        device.run(endless, timeout_s=0.05)
    assert any(entry.name == "endless" for entry in caught.traceback)
    assert device.run(one_task).tasks == 1


def test_an_orchestration_that_returns_late(device: Device) -> None:
    def late(rt):
        one_task(rt)
        begin = time.monotonic()
        while time.monotonic() - begin < 0.05:
            pass

    with pytest.raises(RunTimeoutError, match=r"limit of 0\.02 s"):
        device.run(late, timeout_s=0.02)
    assert device.run(one_task).tasks == 1


def test_an_orchestration_that_continues_after_an_error(device: Device) -> None:
    def stubborn(rt):
        while True:
            try:
                one_task(rt)
            except RunTimeoutError:
                with pytest.raises(RunTimeoutError):
                    one_task(rt)
                return

    with pytest.raises(RunTimeoutError):
        device.run(stubborn, timeout_s=0.02)
    assert device.run(one_task).tasks == 1


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1", [1], True, 1j])
def test_limits_are_positive_numbers(device: Device, limit: Any) -> None:
    with pytest.raises(UsageError, match="timeout_s is"):
        device.run(one_task, timeout_s=limit)


# Each copy back starts one byte later, so a byte after the array changes once some copies are done.
PAIRS = """
#include "runtime.h"
extern "C" int build(Runtime* runtime, uint64_t* args, int) {
  char* const host = reinterpret_cast<char*>(args[0]);
  const size_t bytes = args[1];
  void* dev = runtime->host_api.device_malloc(bytes);
  runtime->host_api.copy_to_device(dev, host, bytes);
  for (uint64_t i = 0; i < args[2]; ++i) runtime->record_tensor_pair(host + i, dev, bytes);
  return 0;
}
"""
COPIES = 20_000  # copies of 8 MiB each, which take about a minute


def test_ctrl_c_between_two_copies_back(tmp_path: Path) -> None:
    source = tmp_path / "graph.cpp"
    source.write_text(PAIRS)
    chip = ChipCallable(OrchestrationSource(source, "build"), {}, signature=("out",))
    size = 8 << 20
    host = np.zeros(size + COPIES - 1, np.uint8)
    host[:size] = 1
    settings = {"cache_dir": tmp_path}
    with pto_core.open_device("a2a3sim", runtime="host_build_graph", settings=settings) as device:
        device.prepare(chip)

        def interrupt() -> None:
            while not host[size]:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt, daemon=True)

        def copy() -> None:
            interrupter.start()
            device.run(chip, host, size, COPIES)
            # the interruption must arrive inside this block, even when it is late
            interrupter.join()

        with pytest.raises(KeyboardInterrupt):
            copy()
        assert host[size] == 1
        assert host[-1] == 0
        copied = device.run(chip, host, 1024, 3000)
        assert copied.copies_out == 3000
        assert device.run(one_task).tasks == 1
