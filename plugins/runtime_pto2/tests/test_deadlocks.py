"""Test programs that cannot continue, in both simulator modes: the error advises a setting."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import ChipCallable, Device, In, Out, kernel, open_device
from pto_core.errors import CapacityError, DeadlockError
from pto_core.kernels import OrchestrationSource

KIB = 1024
MODES = ("threads", "deterministic")
PATIENCE_S = 60


@kernel(core="aiv")
def nothing():
    pass


@kernel(core="aiv")
def slow():
    time.sleep(0.05)


@kernel(core="aiv")
def fill(out: Out):
    out[...] = 1


@kernel(core="aiv")
def read(source: In):
    pass


@pytest.fixture(params=MODES)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., Device]]:
    """Return a function that opens a device with the given sizes."""
    with ExitStack() as devices:

        def open_with(**sizes: Any) -> Device:
            settings = {f"pto2.{key}": value for key, value in sizes.items()}
            settings["sim.mode"] = request.param
            device = open_device("a2a3sim", runtime="pto2", settings=settings)
            return devices.enter_context(device)

        yield open_with


def stuck(device: Device, graph: Callable[[Any], None]) -> DeadlockError:
    """Return the error of a run that cannot continue; check that the device is still usable."""
    with pytest.raises(DeadlockError) as caught:
        device.run(graph)
    assert device.run(lambda rt: rt.submit(nothing)).tasks == 1
    return caught.value


def scoped_tasks(count: int) -> Callable[[Any], None]:
    def graph(rt):
        with rt.scope():
            for _ in range(count):
                rt.submit(nothing)

    return graph


def test_eight_tasks_in_one_scope_do_not_fit_a_window_of_four(opened):
    graph = scoped_tasks(8)
    error = stuck(opened(task_window="4"), graph)
    assert (error.resource, error.ring, error.current, error.needed) == ("task ring", 1, 4, 16)
    assert error.settings == {"pto2.task_window": "16"}
    assert error.file == __file__
    assert opened(task_window="16").run(graph).tasks == 8
    assert stuck(opened(task_window="8"), graph).needed == 16


def test_three_outputs_of_sixteen_kib_do_not_fit_thirty_two(opened):
    def graph(rt):
        for _ in range(3):
            rt.submit(fill, rt.tensor(16 * KIB, "uint8"))

    error = stuck(opened(heap="32K"), graph)
    assert (error.resource, error.ring, error.current) == ("heap ring", 0, 32 * KIB)
    assert error.needed == 48 * KIB
    assert opened(heap="48K").run(graph).tasks == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_device_without_memory_for_the_heap_names_its_setting(mode):
    """The runtime never takes a smaller ring in silence."""
    settings = {"sim.mode": mode, "sim.memory_bytes": 2**20, "pto2.heap": "2M"}

    def graph(rt):
        rt.submit(fill, rt.tensor(KIB, "uint8"))

    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        with pytest.raises(CapacityError, match="environment PTO2_RING_HEAP") as caught:
            device.run(graph)
        assert caught.value.value == 2 * 2**20
        assert f"{2 * 2**20} bytes" in str(caught.value)
    smaller = settings | {"pto2.heap": "512K"}
    with open_device("a2a3sim", runtime="pto2", settings=smaller) as device:
        assert device.run(graph).tasks == 1


def set_advised_variable(error: CapacityError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variable that the error names to the value that it advises."""
    advice = re.search(r"environment (\w+)=(\d+)", str(error))
    assert advice is not None, error
    monkeypatch.setenv(*advice.groups())


def test_an_output_larger_than_the_heap_can_never_fit(opened, monkeypatch):
    def graph(rt):
        rt.submit(fill, rt.tensor(32 * KIB, "uint8"))

    with pytest.raises(CapacityError, match="can never fit") as caught:
        opened(heap="1K").run(graph)
    assert (caught.value.value, caught.value.limit) == (32 * KIB, KIB)
    set_advised_variable(caught.value, monkeypatch)
    with pytest.raises(CapacityError, match="heap"):
        opened().run(lambda rt: rt.submit(fill, rt.tensor(33 * KIB, "uint8")))
    assert opened().run(graph).tasks == 1


def test_a_hundred_and_twenty_eight_producers_do_not_fit_a_pool_of_sixteen(opened, monkeypatch):
    data = np.zeros((128, 16), np.float32)

    def graph(rt, whole):
        for row in range(128):
            rt.submit(fill, whole[row])
        rt.submit(read, whole)

    with pytest.raises(CapacityError, match="dependency pool") as caught:
        opened(dep_pool="16").run(graph, data)
    assert caught.value.value == 129
    set_advised_variable(caught.value, monkeypatch)
    assert opened().run(graph, data).tasks == 129


def test_a_twenty_fifth_cluster_is_more_than_any_device_has(opened):
    def graph(rt):
        for _ in range(25):
            rt.allocate_cluster()

    error = stuck(opened(), graph)
    assert (error.resource, error.needed, error.current) == ("clusters", 25, 24)
    assert "No setting suffices" in str(error)


def await_report() -> bool:
    """Return whether a long wait was logged, to the file that replaces standard error."""
    patience = time.monotonic() + PATIENCE_S
    while b" BLOCKED " not in os.pread(2, KIB * KIB, 0):
        if time.monotonic() > patience:
            return False
        time.sleep(0.001)
    return True


@kernel(core="aiv")
def tell():
    await_report()
    print("kernel ends", file=sys.stderr, flush=True)


def test_a_long_wait_is_reported_while_it_lasts(capfd):
    def graph(rt):
        with rt.scope():
            rt.submit(tell)
            rt.submit(nothing)
            rt.submit(nothing)
        rt.submit(nothing)
        with rt.scope():
            rt.submit(nothing)

    with open_device("a2a3sim", runtime="pto2", settings={"pto2.task_window": "4"}) as device:
        assert device.run(graph).tasks == 5
    shown = capfd.readouterr().err
    blocked = shown.find("[TaskRing] BLOCKED (Flow Control): ring=1, current=3, last_alive=0")
    assert 0 <= blocked < shown.find("kernel ends"), shown
    line = graph.__code__.co_firstlineno + 7
    assert f" ms at test_deadlocks.py:{line}\n" in shown


ORCHESTRATION = """
#include "pto_orchestration_api.h"

void build(PTO2Runtime* rt, uint64_t*, int) {
  for (int scope = 0; scope < 2; ++scope) {
    PTO2_SCOPE(rt) {
      for (int task = 0; task < 3; ++task) {
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, nullptr, 0);
      }
    }
  }
}
"""


def test_a_long_wait_of_an_orchestration_in_cpp_is_reported(tmp_path, shared_cache, capfd):
    source = tmp_path / "build.cpp"
    source.write_text(ORCHESTRATION)
    chip = ChipCallable(OrchestrationSource(source, "build"), [(0, tell)])
    settings = {"pto2.task_window": "4", "sim.workers": 2, "cache_dir": str(shared_cache)}
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        assert device.run(chip).tasks == 6
    shown = capfd.readouterr().err
    blocked = shown.find("[TaskRing] BLOCKED (Flow Control): ring=1, current=3, last_alive=0")
    assert 0 <= blocked < shown.find("kernel ends"), shown
    assert "build.cpp:8" in shown


EIGHT_TASKS = (
    """#include "pto_orchestration_api.h"






void build(PTO2Runtime* rt, uint64_t*, int) {

  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, nullptr, 0);  // line 10
"""
    + 7 * "  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, nullptr, 0);\n"
)


def test_the_page_on_reports_shows_a_real_one(opened, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "deadlock-reports.md").read_text()
    shown = page.partition("```\n")[2].partition("```")[0]
    source = tmp_path / "graph.cpp"
    source.write_text(EIGHT_TASKS + "}\n")
    chip = ChipCallable(OrchestrationSource(source, "build"), [(0, nothing)])
    with pytest.raises(DeadlockError) as caught:
        opened(task_window="4").run(chip)
    assert str(caught.value).split() == shown.split()


def test_a_deadlock_names_the_lines_of_the_scope_and_of_the_call(opened, capfd):
    def graph(rt):
        with rt.scope():
            for _ in range(8):
                rt.submit(nothing)

    line = graph.__code__.co_firstlineno + 1
    error = stuck(opened(task_window="4"), graph)
    assert f"opened at test_deadlocks.py:{line}" in str(error)
    assert f"1 slot wanted at test_deadlocks.py:{line + 2}." in str(error)
    assert error.line == line + 2
    assert f"task 0 of ring 1 from test_deadlocks.py:{line + 2}, done but not retired" in str(error)
    assert capfd.readouterr().err == ""


def test_a_slow_kernel_under_a_full_ring_is_no_deadlock(opened):
    def graph(rt):
        for _ in range(3):
            with rt.scope():
                for _ in range(3):
                    rt.submit(slow)

    device = opened(task_window="4")
    report = device.run(graph)
    assert report.tasks == 9
    assert report.statistics["blocked_on_tasks"] >= 1
    assert report.statistics["ring1_tasks_peak"] == 3


def test_an_orchestration_that_ends_early_tells_a_lower_bound(opened):
    def program(rt, end):
        for _ in range(9):
            rt.submit(nothing)
        end(rt)
        for _ in range(40):
            rt.submit(nothing)

    def fail(_rt):
        raise ValueError("enough")

    device = opened(task_window="8")
    for end in (fail, lambda rt: rt.free_cluster(5), lambda rt: rt.submit(nothing, 1)):
        error = stuck(device, lambda rt, end=end: program(rt, end))
        assert "Needed, at least: task window 16 slots" in str(error)
        assert error.settings == {"pto2.task_window": "16"}
    error = stuck(device, lambda rt: program(rt, lambda _rt: None))
    assert "Smallest that suffices: task window 64 slots" in str(error)


def test_a_blocked_submit_lets_other_threads_go_on(capfd):
    is_free, counted = threading.Event(), []

    @kernel(core="aiv")
    def hold():
        assert is_free.wait(2 * PATIENCE_S)

    def graph(rt):
        with rt.scope():
            for _ in range(3):
                rt.submit(hold)
        with rt.scope():
            rt.submit(nothing)

    def count():
        if await_report():  # the submit waits; each round below lets its thread continue if it can
            while len(counted) < 2000:
                time.sleep(0)
                counted.append(1)
        is_free.set()

    thread = threading.Thread(target=count)
    thread.start()
    with open_device("a2a3sim", runtime="pto2", settings={"pto2.task_window": "4"}) as device:
        report = device.run(graph, timeout_s=2 * PATIENCE_S)
    thread.join()
    assert len(counted) == 2000
    assert report.tasks == 4
    assert report.statistics["blocked_on_tasks"] >= 1
