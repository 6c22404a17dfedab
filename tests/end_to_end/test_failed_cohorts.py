"""A failed kernel among those that wait for each other: with an access log, and in a Worker."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pto_core import Worker, open_device
from pto_core.chip import ChipCallable, CoreCallable, KernelSource, OrchestrationSource
from pto_core.errors import TaskFailedError

SOURCES = Path(__file__).parents[2] / "plugins" / "runtime_pto2" / "tests" / "published_2026_08"
OFTEN, THROUGH_PIPES, APART = 1, 2, 6
"""Numbers of programs in cohorts.cpp."""


def chip(*flags: str) -> ChipCallable:
    kernels = [
        CoreCallable(KernelSource(SOURCES / "cohort_kernel.cpp", [f"-D{name}", *flags]), core)
        for name in ("BARRIER", "PIPE")
        for core in ("aiv", "aic")
    ]
    kernels.append(CoreCallable(KernelSource(SOURCES / "cohort_kernel.cpp", ["-DOWN"]), "aiv"))
    source = OrchestrationSource(SOURCES / "cohorts.cpp")
    return ChipCallable(source, dict(enumerate(kernels)), ("inout", "scalar"))


def test_a_kernel_that_crashed_is_not_ended_again() -> None:
    failing = chip("-DFAILS=1", "-DCRASHES")
    settings = {"measure": True, "sim.mode": "deterministic"}
    with open_device("a2a3sim", runtime="pto2", block_dim=2, settings=settings) as device:
        out = np.zeros(128, np.float32)
        with pytest.raises(TaskFailedError, match=r"the assertion at|crashed with SIGSEGV"):
            device.run(failing, out, THROUGH_PIPES, accesses=True)
        out = np.zeros(128, np.float32)
        device.run(failing, out, APART)
        assert out[:40].tolist() == [1.0] * 40


def test_a_failed_assertion_in_a_chip_of_a_worker_fails_its_task(capfd) -> None:
    with Worker(3, device_ids=[0], platform="a2a3sim", runtime="pto2") as worker:
        out = worker.shared_array(128, np.float32)
        failing, passing = worker.register(chip("-DFAILS=1")), worker.register(chip())
        with pytest.raises(TaskFailedError, match=r"failed: place != FAILS \(1 != 1\)") as caught:
            worker.submit(failing, out, OFTEN).result()
        assert caught.value.path == "L3/chip0"
        out = worker.shared_array(128, np.float32)
        worker.submit(passing, out, APART).result()
        assert out[:40].tolist() == [1.0] * 40
    assert re.search(r"^pto: cohort_kernel .*: block 1$", capfd.readouterr().err, re.MULTILINE)
