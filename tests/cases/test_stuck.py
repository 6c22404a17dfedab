"""`pto run` on programs that cannot continue: the error advises a setting that suffices."""

from __future__ import annotations

import pytest

GOLDEN = """
import ctypes
import numpy as np

ROWS = ("tasks", "producers", "clusters", "forever")
ALL_CASES = {row: {"row": number} for number, row in enumerate(ROWS)}
DEFAULT_CASE = "tasks"


def generate_inputs(params):
    return [("out_done", np.zeros(1, np.float32)), ("row", ctypes.c_int64(params["row"]))]


def compute_golden(tensors, params):
    tensors["out_done"][:] = 1
"""
CONFIG = """
KERNELS = [
    {"func_id": 0, "name": "nothing", "source": "nothing.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "set_one", "source": "set_one.cpp", "core_type": "aiv"},
    {"func_id": 2, "name": "spin", "source": "spin.cpp", "core_type": "aiv"},
]
ORCHESTRATION = {"source": "rows.cpp", "function_name": "aicpu_orchestration_entry"}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
"""
KERNELS = {
    "nothing": 'extern "C" void kernel_entry(long*) {}\n',
    "set_one": """
#include "tensor.h"
extern "C" void kernel_entry(int64_t* args) {
  *reinterpret_cast<float*>(reinterpret_cast<TensorData*>(args[0])->buffer.addr) = 1;
}
""",
    "spin": 'extern "C" void kernel_entry(long*) { for (volatile long i = 0;; i = i + 1) {} }\n',
}
ROWS = """
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) { return {2}; }

static void task(PTO2Runtime* rt) { pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, nullptr, 0); }

static void producers(PTO2Runtime* rt, int count) {
  const uint64_t shapes[1] = {static_cast<uint64_t>(count)};
  const uint64_t one[1] = {1};
  Tensor whole = make_tensor(shapes, 1);
  for (uint64_t i = 0; i < shapes[0]; ++i) {
    Tensor part = whole.view(one, &i);
    PTOParam params[] = {make_output_param(part)};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
  }
  PTOParam params[] = {make_input_param(whole)};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shapes[1] = {1};
  Tensor done = make_tensor_external(reinterpret_cast<void*>(args[0]), shapes, 1);
  PTOParam params[] = {make_output_param(done)};
  pto2_rt_submit_task(rt, 1, PTO2_WORKER_VECTOR, params, 1);
  PTO2_SCOPE(rt) {
    switch (args[1]) {
      case 0:
        for (int i = 0; i < 8; ++i) task(rt);
        break;
      case 1:
        producers(rt, 128);
        break;
      case 2:
        for (int i = 0; i < 25; ++i) pto2_rt_allocate_cluster(rt);
        break;
      case 3:
        pto2_rt_submit_task(rt, 2, PTO2_WORKER_VECTOR, nullptr, 0);
        break;
    }
  }
}
"""
WINDOW, POOL = "pto2.task_window", "pto2.dep_pool"
CALL = ROWS[: ROWS.index("pto2_rt_submit_task")].count("\n") + 1
"""The line of the call that submits the tasks of the first row."""
# For each row: settings of the run, parts of the error, and the setting that it must advise.
ANSWERS = {
    "tasks": (
        (f"{WINDOW}=4",),
        ["deadlock", "task ring of ring 1", f"rows.cpp:{CALL}."],
        f"{WINDOW}=16",
    ),
    "producers": ((f"{POOL}=16",), ["dependency pool", "ring 1"], f"{POOL}=129"),
    "clusters": ((), ["deadlock", "clusters", "No setting suffices"], None),
}


@pytest.fixture
def rows(case):
    """Return the case whose parameters select the row."""
    case.write("golden.py", GOLDEN).write("kernels/kernel_config.py", CONFIG)
    case.write("kernels/rows.cpp", ROWS)
    for name, source in KERNELS.items():
        case.write(f"kernels/{name}.cpp", source)
    return case


def run(rows, name: str, *settings: str):
    words = [word for setting in settings for word in ("--set", setting)]
    return rows.run("--case", name, *words)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_error_is_right_and_its_advice_suffices(rows, name: str) -> None:
    settings, expected, advice = ANSWERS[name]
    done = run(rows, name, *settings)
    assert done.returncode == 4, done.stdout + done.stderr
    for part in expected:
        assert part in done.stderr
    assert rows.leftovers() == []
    if advice is None:
        return
    assert f"--set {advice}" in done.stderr
    done = run(rows, name, advice)
    assert done.returncode == 0, done.stderr


def test_a_kernel_that_never_returns_is_no_deadlock(rows) -> None:
    done = run(rows, "forever", f"{WINDOW}=4", "task_timeout_s=1")
    assert done.returncode == 4
    assert "deadlock" not in done.stderr
    for part in ("kernel 'spin' (func_id 2)", "task ", "on AIV ", "within 1 s"):
        assert part in done.stderr
    state = done.stderr.partition("state when the run was ended: ")[2]
    assert state.startswith("tensormap_and_ringbuffer: ")
    assert "; ring 0: " in state
    assert "kernel 'spin' (func_id 2), task " in state
    assert rows.leftovers() == []
