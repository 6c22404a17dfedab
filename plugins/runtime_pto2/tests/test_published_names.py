"""Compile and run sources that use rarely used names of the published interface."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from pto_core import ChipCallable, CoreCallable, Device, open_device
from pto_core.errors import OrchestrationError
from pto_core.kernels import KernelSource, OrchestrationSource
from pto_runtime_pto2.variant import plugin

PUBLISHED = Path(__file__).with_name("published")
KERNEL = CoreCallable(KernelSource(PUBLISHED / "tensor_dump.cpp"), "aiv")


def opened(cache: Path) -> Device:
    return open_device("a2a3sim", runtime="pto2", settings={"cache_dir": str(cache)})


def test_tensors_are_described_compared_and_submitted_through_the_table(
    shared_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = OrchestrationSource(PUBLISHED / "tensor_names.cpp")
    values, result = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    with opened(shared_cache) as device:
        report = device.run(ChipCallable(source, {0: KERNEL}), values, result, 16)
    assert report.tasks == 1
    assert np.array_equal(result, values)
    ctypes.CDLL(None).fflush(None)  # the orchestration's printf writes to a buffer
    assert "TensorData{addr=0x" in capfd.readouterr().out


def test_compile_time_constants_have_their_published_values(shared_cache: Path) -> None:
    chip = ChipCallable(OrchestrationSource(PUBLISHED / "constants.cpp"))
    defaults = {option.key: option.default for option in plugin.options()}
    windows, heaps, edges = (defaults[f"pto2.{k}"] for k in ("task_window", "heap", "dep_pool"))
    platform = (24, 4, 24, 48, 50_000_000)
    rings = (len(windows), windows[0], heaps[0], sum(heaps), edges[0])
    regions = (defaults["pto2.tensor_map_pool"], 65536, 64)
    with opened(shared_cache) as device:
        device.run(chip, *platform, *rings, *regions, 64, 1024)
    assert (windows[0], heaps[0], edges[0], regions[0]) == (65536, 2**30, 65536, 65536)


@pytest.mark.parametrize("macro", ["always_assert", "debug_assert"])
def test_a_false_assertion_ends_the_run_with_its_text(
    tmp_path: Path, shared_cache: Path, macro: str
) -> None:
    source = tmp_path / "asserts.cpp"
    source.write_text(
        '#include "pto_orchestration_api.h"\n'
        'extern "C" void aicpu_orchestration_entry(PTO2Runtime*, uint64_t*, int count) {\n'
        f"  {macro}(count == 1);\n"
        f"  {macro}(count > 99);\n"
        "}\n"
    )
    with (
        opened(shared_cache) as device,
        pytest.raises(OrchestrationError, match=r"asserts\.cpp:4: count > 99"),
    ):
        device.run(ChipCallable(OrchestrationSource(source)), 7)


def test_a_function_name_that_no_source_defines_is_replaced_by_the_published_entry(
    shared_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = OrchestrationSource(PUBLISHED / "tensor_names.cpp", "build_graph")
    values, result = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    with opened(shared_cache) as device:
        assert device.run(ChipCallable(source, {0: KERNEL}), values, result, 4).tasks == 1
    said = capfd.readouterr().err
    assert "tensor_names.cpp has no function 'build_graph'" in said
    assert "aicpu_orchestration_entry runs instead" in said
