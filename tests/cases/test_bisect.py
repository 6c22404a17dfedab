"""``pto bisect``: the first task whose output differs between two runs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

ROWS, STEPS, PLACES = 100, 100, 1

GOLDEN = """
import ctypes
from pathlib import Path

import numpy as np

ALL_CASES = {"right": {}, "planted": {}}
__outputs__ = ["x"]


def generate_inputs(params):
    is_right = params["name"] == "right"
    at = -1 if is_right else int(Path(__file__).with_name("place").read_text())
    return [("x", np.ones((ROWS, 8), np.float32)), ("at", ctypes.c_int64(at))]
""".replace("ROWS", str(ROWS))

CONFIG = """
KERNELS = [{"func_id": 0, "source": "step.cpp", "core_type": "aiv"}]
ORCHESTRATION = {"source": "graph.cpp", "function_name": "aicpu_orchestration_entry"}
"""

STEP = """
#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

static float* first_element(int64_t argument) {
  auto* tensor = reinterpret_cast<const pto_tensor_data*>(argument);
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" void kernel_entry(int64_t* args) {
  const float* previous = first_element(args[0]);
  float* row = first_element(args[1]);
  const float sign = args[2] == args[3] ? -1.0f : 1.0f;
  for (int i = 0; i < 8; ++i) row[i] = row[i] * 0.5f + sign * previous[i] * 0.5f;
}
"""

GRAPH = """
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 2;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {ROWS, 8}, row_shape[] = {1, 8};
  Tensor x = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 2);
  for (uint64_t task = 0; task < ROWS * STEPS; ++task) {
    const uint64_t at[] = {task % ROWS, 0}, before[] = {(task + ROWS - 1) % ROWS, 0};
    Tensor row = x.view(row_shape, at), previous = x.view(row_shape, before);
    PTOParam params[] = {make_input_param(previous), make_inout_param(row), make_scalar_param(task),
                         make_scalar_param(args[1])};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 4);
  }
}
""".replace("ROWS", str(ROWS)).replace("STEPS", str(STEPS))

LINE = GRAPH[: GRAPH.index("pto2_rt_submit_task")].count("\n") + 1


def test_the_task_with_one_wrong_operation_is_named(case, tmp_path: Path) -> None:
    case.write("golden.py", GOLDEN).write("kernels/kernel_config.py", CONFIG)
    case.write("kernels/step.cpp", STEP).write("kernels/graph.cpp", GRAPH)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for place in random.Random(seed).sample(range(ROWS * STEPS), PLACES):
        case.write("place", str(place))
        done = case.command(
            *("bisect", str(case.folder), "-r", "tensormap_and_ringbuffer", "--case", "right"),
            *("--json", "--out", str(tmp_path / "out"), "--against", "--case", "planted"),
        )
        assert done.returncode == 1, done.stderr
        document = json.loads(done.stdout)
        found = document["difference"]
        assert found["task"] == f"step#{place}", "the planted task"
        assert found["where"].endswith(f"graph.cpp:{LINE}")
        (output,) = found["outputs"]
        assert (output["mismatches"], output["first_index"]) == (8, [0, 0])
        assert output["first_actual"] < output["first_expected"]
        assert {one["state"] for one in found["inputs"]} == {"equal"}
        writers = [one["task"] for each in found["inputs"] for one in each["writers"]]
        assert f"step#{place - ROWS}" in writers or place < ROWS
        replayed = case.command("replay", found["files"][1])
        assert replayed.stdout == f"step#{place}: as in the run\n"


@pytest.fixture
def bisect(case, tmp_path: Path):
    """Return a function that compares a case with its copy."""
    copy = tmp_path / "copy"
    shutil.copytree(case.folder, copy)

    def run(*options: str, against: tuple[str, ...] = (str(copy),)):
        folders = (str(case.folder), "--out", str(tmp_path / "out"))
        return case.command("bisect", *folders, *options, "--against", *against)

    return run


def test_outputs_within_the_tolerance_are_equal(case, bisect) -> None:
    equal = bisect(against=("-r", "aicpu_build_graph"))
    assert (equal.returncode, equal.stdout) == (0, "no difference: 1 tasks have equal outputs\n")
    case.kernel("for (int64_t i = 0; i < 64; ++i) f[i] = a[i] * 2.00001f; return;")
    within = bisect("--dtype", "float32")
    assert within.stdout.startswith("no difference: 1 tasks have other bits, all within"), within
    assert within.returncode == 0
    case.kernel("f[7] = 3; a[7] = 4; for (int64_t i = 8; i < 64; ++i) f[i] = 4; return;")
    wrong = bisect("--dtype", "float32")
    assert "the first task that differs is twice#0  " in wrong.stdout
    assert "  1: memory: 8 of 64 elements; first at [0]: 0.0 against 4.0; " in wrong.stdout
    assert "  0: memory is equal before the call\n" in wrong.stdout
    assert wrong.returncode == 1


def test_tasks_of_one_run_only_are_named(case, bisect) -> None:
    case.graph("host_build_graph", "add();")
    found = bisect()
    assert found.returncode == 1
    assert f"only in A ({case.folder}): 1 tasks, first twice#1  " in found.stdout
    assert found.stdout.startswith("no difference: 1 tasks have equal outputs\n")


def test_runs_that_cannot_be_compared_are_refused(case, bisect) -> None:
    missing = bisect(against=())
    assert (missing.returncode, "--against is missing; end" in missing.stderr) == (2, True)
    unknown = bisect(against=("--no-such",))
    assert (unknown.returncode, "after --against: " in unknown.stderr) == (2, True)
    case.graph("host_build_graph", "return 0;")
    empty = bisect()
    assert empty.returncode == 2
    assert f"no task of the run A ({case.folder}) has an output" in empty.stderr
    case.graph("host_build_graph").kernel("__builtin_trap();")
    crashed = bisect()
    assert crashed.returncode == 4
    assert f"this is the run A ({case.folder})" in crashed.stderr
