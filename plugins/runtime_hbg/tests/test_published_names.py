"""Compile and run a source that uses rarely used names of the published ``runtime.h``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_core import ChipCallable, CoreCallable, open_device
from pto_core.kernels import KernelSource, OrchestrationSource

PUBLISHED = Path(__file__).with_name("published")
INCREASE = """
#include <cstdint>
extern "C" void kernel_entry(int64_t* args) {
  for (int64_t i = 0; i < args[2]; ++i) ((float*)args[1])[i] = ((float*)args[0])[i] + 1;
}
"""


def test_a_graph_is_logged_limited_and_read_back(
    tmp_path: Path, shared_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "increase.cpp"
    kernel.write_text(INCREASE)
    chip = ChipCallable(
        OrchestrationSource(PUBLISHED / "graph_names.cpp", "build"),
        {0: CoreCallable(KernelSource(kernel), "aiv")},
    )
    values, result = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    settings = {"cache_dir": str(shared_cache), "log_level": "info"}
    with open_device("a2a3sim", runtime="host_build_graph", settings=settings) as device:
        device.run(chip, values, result, 8)
    assert np.array_equal(result, values + 2)
    log = capfd.readouterr().err
    assert "build: build: 32 bytes" in log
    assert "build: build: two tasks" in log
    assert "successors" not in log, "the level of the run hides debug messages"


@pytest.mark.parametrize(
    ("runtime", "parameters"),
    [("host_build_graph", "Runtime*, uint64_t*, int"), ("aicpu_build_graph", "Runtime*")],
)
def test_constants_of_the_platform_have_their_published_values(
    tmp_path: Path, shared_cache: Path, runtime: str, parameters: str
) -> None:
    source = tmp_path / "constants.cpp"
    source.write_text(
        '#include "platform_config.h"\n#include "runtime.h"\n'
        "constexpr int limits[] = {PLATFORM_MAX_BLOCKDIM, PLATFORM_MAX_AICPU_THREADS,\n"
        "    PLATFORM_MAX_AIC_PER_THREAD, PLATFORM_MAX_AIV_PER_THREAD};\n"
        "static_assert(limits[0] == 24 && limits[1] == 4 && limits[2] == 24 && limits[3] == 48);\n"
        "static_assert(PLATFORM_PROF_SYS_CNT_FREQ == 50'000'000);\n"
        f'extern "C" int build({parameters}) {{ return 0; }}\n'
    )
    settings = {"cache_dir": str(shared_cache)}
    with open_device("a2a3sim", runtime=runtime, settings=settings) as device:
        device.run(ChipCallable(OrchestrationSource(source, "build")))
