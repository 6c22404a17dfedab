"""Test tasks whose kernels wait for each other: sync start, and pipes between the lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pto_core import open_device
from pto_core.chip import ChipCallable, CoreCallable, Device, KernelSource, OrchestrationSource
from pto_core.errors import OrchestrationError, TaskFailedError, TaskTimeoutError

SOURCES = Path(__file__).parent / "published_2026_08"
PROGRAMS = (
    *("many", "often", "through_pipes", "too_many", "endless", "recorded", "apart"),
    "endless_lane",
)


def chip(*flags: str) -> ChipCallable:
    """Return the programs with their kernels."""
    kernels = [
        CoreCallable(KernelSource(SOURCES / "cohort_kernel.cpp", [f"-D{name}", *flags]), core)
        for name in ("BARRIER", "PIPE")
        for core in ("aiv", "aic")
    ]
    kernels.append(CoreCallable(KernelSource(SOURCES / "cohort_kernel.cpp", ["-DOWN"]), "aiv"))
    source = OrchestrationSource(SOURCES / "cohorts.cpp")
    return ChipCallable(source, dict(enumerate(kernels)), ("inout", "scalar"))


CHIP = chip()
FAILING = chip("-DFAILS=1")
SHAPES = [("threads", 2, 3), ("threads", 5, 4), ("threads", 3, 1), ("deterministic", 3, 4)]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    mode, blocks, threads = request.param
    settings = {"sim.mode": mode, "aicpu_thread_num": threads, "task_timeout_s": 60}
    with open_device("a2a3sim", runtime="pto2", block_dim=blocks, settings=settings) as opened:
        yield opened


def run(device: Device, program: str, chip: ChipCallable = CHIP, **options: object) -> np.ndarray:
    out = np.zeros(128, np.float32)
    device.run(chip, out, PROGRAMS.index(program), **options)
    return out


@pytest.mark.parametrize("hazards", ["raw", "full"])
def test_cohorts_compete_with_each_other_and_with_single_tasks(device, hazards) -> None:
    assert run(device, "many", hazards=hazards).tolist() == [1.0] * 100 + [0.0] * 28


def test_blocks_meet_often(device) -> None:
    assert run(device, "often")[:2].tolist() == [1.0, 1.0]


def test_tiles_pass_through_pipes(device) -> None:
    assert run(device, "through_pipes")[:35].tolist() == [2.0 * sum(range(100))] * 35


def test_the_tasks_of_a_cluster_have_memory_of_their_own(device: Device) -> None:
    assert run(device, "apart")[:40].tolist() == [1.0] * 40


def test_recorded_tasks_wait_for_each_other(device: Device) -> None:
    assert run(device, "recorded")[:120].tolist() == [1.0, 1.0, 12.0, 0.0] * 30


def test_more_blocks_than_cores_end_the_run_with_the_published_code(device: Device) -> None:
    place = r"cohorts\.cpp:\d+: (\d+) blocks must start at the same time, but the run has (\d+) AIV"
    with pytest.raises(OrchestrationError, match=place) as caught:
        run(device, "too_many")
    assert caught.value.code == -7
    blocks, cores = re.findall(r"\d+", str(caught.value).split("cohorts.cpp:")[1])[1:3]
    assert int(blocks) == int(cores) + 1


def test_a_failed_assertion_ends_the_kernels_that_wait(device: Device, capfd) -> None:
    place = r"task \d+ of ring \d+: kernel cohort_kernel.* on AIV \d+: the assertion at "
    values = r"cohort_kernel\.cpp:\d+ failed: place != FAILS \(1 != 1\): of \d+"
    with pytest.raises(TaskFailedError, match=place + values):
        run(device, "often", FAILING)
    texts = re.findall(
        r"^pto: cohort_kernel\S* \(.*\), cohort_kernel.cpp:\d+: block (\d+)$",
        capfd.readouterr().err,
        re.MULTILINE,
    )
    assert "1" in texts
    with pytest.raises(TaskFailedError, match=r"failed: lane == 0 \(1 == 0\)"):
        run(device, "through_pipes", FAILING)
    assert run(device, "often")[:2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("mode", "workers"), [("threads", 0), ("threads", 62), ("deterministic", 0)]
)
def test_a_cohort_that_never_ends_is_ended_by_the_time_limit(mode: str, workers: int) -> None:
    settings = {"sim.mode": mode, "sim.workers": workers}
    device = open_device(
        "a2a3sim", runtime="pto2", block_dim=2, settings=settings, task_timeout_s=1
    )
    with device, pytest.raises(TaskTimeoutError, match=r"cohort_kernel.* on AIV"):
        run(device, "endless")


def test_the_kernel_that_does_not_end_is_named() -> None:
    device = open_device("a2a3sim", runtime="pto2", block_dim=2, task_timeout_s=1)
    with device, pytest.raises(TaskTimeoutError, match=r"on AIV [13] did not return") as caught:
        run(device, "endless_lane")
    assert caught.value.func_id == 2
