"""Test that independent tasks run beside a long C++ kernel while a worker is free."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import CoreCallable, In, InOut, KernelSource, NoDep, open_device

# Both kernels receive the address of two flags as the first TensorData. This one waits, for at most
# 30 s, until the other one has set the first flag. After a timeout it sets the second flag.
WAIT = """
#include <cstdint>
#include <ctime>
extern "C" void kernel_entry(int64_t* args) {
  auto* flags = *reinterpret_cast<int32_t**>(args[0]);
  timespec begin, now, pause{0, 100'000};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (__atomic_load_n(&flags[0], __ATOMIC_ACQUIRE) == 0) {
    nanosleep(&pause, nullptr);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - begin.tv_sec < 30) continue;
    flags[1] = 1;
    return;
  }
}
"""
TELL = """
#include <cstdint>
extern "C" void kernel_entry(int64_t* args) {
  __atomic_store_n(*reinterpret_cast<int32_t**>(args[0]), 1, __ATOMIC_RELEASE);
}
"""


@pytest.fixture
def kernels(tmp_path: Path) -> tuple[CoreCallable, ...]:
    """Return the kernel that waits and the kernel that signals."""
    for name, source in (("wait", WAIT), ("tell", TELL)):
        (tmp_path / f"{name}.cpp").write_text(source)
    return tuple(
        CoreCallable(KernelSource(tmp_path / f"{name}.cpp"), "aiv") for name in ("wait", "tell")
    )


def submit_short_ones(rt: Any, tell: CoreCallable, others: InOut) -> None:
    """Submit short kernels, so that the workers then expect all kernels to be short."""
    for _ in range(3):
        for _ in range(3):
            rt.submit(tell, NoDep(others))
        time.sleep(0.02)


def run_turns(graph: Callable[..., None], settings: dict[str, Any]) -> None:
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        for turn in range(6):
            flags = np.zeros(2, np.int32)
            device.run(graph, flags, np.zeros(2, np.int32))
            assert flags.tolist() == [1, 0], f"turn {turn}"


@pytest.mark.parametrize("workers", [2, 4])
def test_independent_tasks_run_beside_a_long_kernel(
    kernels: tuple[CoreCallable, ...], workers: int
) -> None:
    wait, tell = kernels

    def graph(rt, flags: InOut, others: InOut) -> None:
        submit_short_ones(rt, tell, others)
        rt.submit(wait, NoDep(flags))
        with rt.scope():
            pass
        time.sleep(0.05)
        for _ in range(10):  # more tasks than the window, so that the caller has to wait
            with rt.scope():
                for _ in range(10):
                    rt.submit(tell, NoDep(flags))

    run_turns(graph, {"sim.workers": workers, "pto2.task_window": "16"})


@pytest.mark.parametrize("workers", [2, 4])
def test_they_run_at_the_latest_when_an_orchestration_that_computed_waits(
    kernels: tuple[CoreCallable, ...], workers: int
) -> None:
    """While an orchestration computes, independent tasks may, but need not, run."""
    wait, tell = kernels

    def graph(rt, flags: InOut, others: InOut) -> None:
        submit_short_ones(rt, tell, others)
        rt.submit(wait, NoDep(flags))
        with rt.scope():
            pass
        time.sleep(0.05)
        for _ in range(3):
            rt.submit(tell, NoDep(flags))
        with rt.scope():
            pass
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass

    run_turns(graph, {"sim.workers": workers})


def test_batches_become_whole_again_behind_a_long_kernel(kernels: tuple[CoreCallable, ...]) -> None:
    wait, tell = kernels
    chains, tasks = 8, 4000

    def graph(rt, flags: InOut, others: InOut) -> None:
        rt.submit(wait, InOut(flags))
        for chain in range(chains):
            rt.submit(tell, InOut(others[chain : chain + 1]), In(flags))
        for task in range(tasks):
            chain = task % chains
            rt.submit(tell, InOut(others[chain : chain + 1]))
        rt.submit(tell, NoDep(flags))

    with open_device("a2a3sim", runtime="pto2", settings={"sim.workers": 2}) as device:
        for _ in range(3):
            report = device.run(graph, np.zeros(2, np.int32), np.zeros(chains, np.int32))
            # If the chains are in step, each batch has a task of each chain; otherwise it has one
            # or two.
            assert report.statistics["dispatch_batches"] < tasks / 3
