"""A runtime logs at the log level of the core, unless the backend has its own level."""

from __future__ import annotations

from pathlib import Path

import pytest

import pto_core
from pto_core import ChipCallable
from pto_core.kernels import OrchestrationSource

ORCHESTRATION = """
#include "runtime.h"

class Runtime;

extern "C" int show(Runtime* runtime, uint64_t*, int) {
  runtime->print_runtime();
  return 0;
}
"""


@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({}, False),
        ({"log_level": "info"}, True),
        ({"log_level": "info", "sim.log_level": "warn"}, False),
        ({"sim.log_level": "debug"}, True),
    ],
)
def test_print_runtime_shows_from_info(
    settings: dict[str, str],
    is_shown: bool,
    tmp_path: Path,
    shared_cache: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "show.cpp"
    source.write_text(ORCHESTRATION)
    chip = ChipCallable(OrchestrationSource(source, "show"))
    settings = {**settings, "cache_dir": str(shared_cache)}
    with pto_core.open_device("a2a3sim", runtime="host_build_graph", settings=settings) as device:
        device.run(chip)
    shown = "pto: info: host_build_graph: 0 tasks, 0 edges" in capfd.readouterr().err
    assert shown == is_shown
