"""A kernel that waits does not keep other tasks from running, as long as a worker is free."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pto_core import kernel, open_device


@pytest.mark.parametrize("workers", [2, 3])
def test_a_kernel_may_wait_for_another_one(workers: int) -> None:
    happened = threading.Event()
    waited = []

    @kernel(core="aiv")
    def wait(x: np.ndarray) -> None:
        waited.append(happened.wait(timeout=60))

    @kernel(core="aiv")
    def signal(x: np.ndarray) -> None:
        happened.set()

    def graph(rt, x, y) -> None:
        rt.add_task(wait, (x,))
        rt.add_task(signal, (y,))

    runs = 20
    with open_device("a2a3sim", settings={"sim.workers": workers}) as device:
        for _ in range(runs):
            happened.clear()
            device.run(graph, np.zeros(4), np.zeros(4))
    assert waited == [True] * runs
