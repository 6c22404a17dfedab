"""Test that an error of a C++ orchestration names the line of the call, for every kind of call."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core import ChipCallable, kernel, open_device
from pto_core.errors import CapacityError, UsageError
from pto_core.kernels import OrchestrationSource

BUILD = """
#include "pto_orchestration_api.h"

void build(PTO2Runtime* rt, uint64_t* args, int) {
  int64_t task = pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, nullptr, 0);
  std::vector<PTOParam> many(65, make_scalar_param(0));
  LOG_ALWAYS(rt, "task %d", static_cast<int>(task));
  (void)many;
CALLS
}
"""
FIRST_LINE = 9
CALLS = (
    ("pto2_rt_scope_end(rt)", UsageError, "a scope is ended but none is open"),
    ("pto2_rt_free_cluster(rt, 5)", UsageError, "cluster 5 is freed"),
    ("pto2_rt_add_dep(rt, task, task)", UsageError, "same task; name another task"),
    (
        "pto2_rt_orchestration_done(rt), pto2_rt_orchestration_done(rt)",
        UsageError,
        "a second time",
    ),
    (
        "pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, many.data(), 65)",
        CapacityError,
        "65 parameters",
    ),
)


@kernel(core="aiv")
def nothing():
    pass


def test_each_call_knows_its_line(
    tmp_path: Path, shared_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "build.cpp"
    lines = (f"  if (args[0] == {number}) {call};" for number, (call, *_) in enumerate(CALLS))
    source.write_text(BUILD.replace("CALLS", "\n".join(lines)))
    chip = ChipCallable(OrchestrationSource(source, "build"), [(0, nothing)])
    settings = {"cache_dir": str(shared_cache), "log_level": "error"}
    for number, (_, kind, message) in enumerate(CALLS):
        with (
            open_device("a2a3sim", runtime="pto2", settings=settings) as device,
            pytest.raises(kind, match=message) as caught,
        ):
            device.run(chip, number)
        assert f"build.cpp:{FIRST_LINE + number}: " in str(caught.value)
        assert "pto: build: task 0\n" in capfd.readouterr().err
