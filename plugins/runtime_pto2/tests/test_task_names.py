"""Test that all reports name a task in the same way as the runtime: by its number in a ring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pto_core
from pto_core import CoreCallable, In, KernelSource, NoDep, Scalar, kernel, open_device
from pto_core.errors import AddressError, TaskFailedError, TaskTimeoutError

# The second task of the scope fails, because its scalar is 1.
KERNEL = """
#include <cstdint>
#include <ctime>
extern "C" void kernel_entry(int64_t* args) {
  if (args[1] == 0) return;
  STATEMENT
}
"""
CRASH = "*reinterpret_cast<volatile int*>(16) = 1;"
# TAKES_LONG clearly exceeds this limit, but its kernel returns well within the following 2 s, which
# a kernel has before it counts as lost.
TASK_LIMIT_S = 1
TAKES_LONG = "const timespec time{2, 0}; nanosleep(&time, nullptr);"
FOREVER = """
  if ((*reinterpret_cast<float**>(args[0]))[0] == 0) for (volatile int64_t i = 0;; i = i + 1) {}
"""
TASK = "task 1 of ring 1"
NAMED = f"kernel 'spoiler' (func_id 0), {TASK}, on AIV "

GOLDEN = """
import numpy as np

ALL_CASES = {"first": {"a": 0}, "second": {"a": 1}}
__outputs__ = ["a"]


def generate_inputs(params):
    return [("a", np.full(16, params["a"], np.float32))]


def compute_golden(tensors, params):
    pass
"""
CONFIG = """
KERNELS = [{"func_id": 0, "name": "spoiler", "source": "spoiler.cpp", "core_type": "aiv"}]
ORCHESTRATION = {"source": "build.cpp", "function_name": "build"}
"""
BUILD = """
#include "pto_orchestration_api.h"

void build(PTO2Runtime* rt, uint64_t* args, int) {
  uint64_t shapes[1] = {16};
  Tensor a = make_tensor_external(reinterpret_cast<void*>(args[0]), shapes, 1);
  PTO2_SCOPE(rt) {
    for (int scalar = 0; scalar < 2; ++scalar) {
      PTOParam params[] = {make_inout_param(a), make_scalar_param(scalar)};
      pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
    }
  }
}
"""
IN_PROCESS = """
import sys
import numpy as np
from pto_core import CoreCallable, InOut, KernelSource, NoDep, open_device
from pathlib import Path

spoiler = CoreCallable(KernelSource(Path(sys.argv[1])), "aiv")

def graph(rt, a: InOut):
    with rt.scope():
        rt.submit(spoiler, NoDep(a), 0)
        rt.submit(spoiler, NoDep(a), 1)

settings = {"cache_dir": sys.argv[2], "sim.mode": sys.argv[3]}
with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
    device.run(graph, np.zeros(16, np.float32))
"""


def kernel_file(folder: Path, statement: str) -> Path:
    path = folder / "spoiler.cpp"
    path.write_text(KERNEL.replace("STATEMENT", statement))
    return path


def case(folder: Path, statement: str) -> Path:
    kernels = folder / "case" / "kernels"
    kernels.mkdir(parents=True)
    (folder / "case" / "golden.py").write_text(GOLDEN)
    (kernels / "kernel_config.py").write_text(CONFIG)
    (kernels / "build.cpp").write_text(BUILD)
    kernel_file(kernels, statement)
    return folder / "case"


def test_a_task_that_takes_too_long(tmp_path: Path, shared_cache: Path) -> None:
    spoiler = CoreCallable(KernelSource(kernel_file(tmp_path, TAKES_LONG)), "aiv")

    def graph(rt, a):
        with rt.scope():
            rt.submit(spoiler, NoDep(a), 0)
            rt.submit(spoiler, NoDep(a), 1)

    settings = {"cache_dir": shared_cache}
    limit_s = TASK_LIMIT_S
    with open_device(
        "a2a3sim", runtime="pto2", settings=settings, task_timeout_s=limit_s
    ) as device:
        with pytest.raises(TaskTimeoutError) as caught:
            device.run(graph, np.zeros(16, np.float32))
        assert NAMED in str(caught.value)
        assert caught.value.task == 1 << 2 | 1


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_a_crash_in_the_users_process(mode: str, tmp_path: Path, shared_cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS, kernel_file(tmp_path, CRASH), shared_cache, mode],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -11, done.stderr
    assert "crashed with SIGSEGV: task 1 of ring 1 on core AIV " in done.stderr


@pytest.mark.parametrize(
    ("statement", "timeout_s", "message"),
    [(CRASH, None, "crashed: ended with SIGSEGV"), (FOREVER, 8, "did not return")],
    ids=["crash", "forever"],
)
def test_a_case_that_is_ended(
    statement: str, timeout_s: float | None, message: str, tmp_path: Path, shared_cache: Path
) -> None:
    folder = case(tmp_path, statement)
    options = {"runtime": "pto2", "settings": {"cache_dir": shared_cache}}
    if timeout_s is not None:  # compile before, so that the time limit covers only the run
        pto_core.run_case(folder, case="second", **options).check()
    (error,) = pto_core.run_case(folder, timeout_s=timeout_s, **options).errors
    assert NAMED in str(error)
    assert message in str(error)


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_a_python_kernel_that_raises(mode: str) -> None:
    @kernel(core="aiv")
    def fails_with_one(a: In, number: Scalar) -> None:
        if number:
            raise ValueError("bad luck")

    def graph(rt, a: In):
        with rt.scope():
            rt.submit(fails_with_one, a, 0)
            rt.submit(fails_with_one, a, 1)

    with open_device("a2a3sim", runtime="pto2", settings={"sim.mode": mode}) as device:
        with pytest.raises(TaskFailedError) as caught:
            device.run(graph, np.zeros(16, np.float32))
        message = f"kernel 'fails_with_one' raised ValueError: bad luck (func_id 0, {TASK}, on AIV "
        assert message in str(caught.value)
        assert str(caught.value).count("task ") == 1


def test_a_case_whose_task_takes_too_long(tmp_path: Path, shared_cache: Path) -> None:
    settings = {"cache_dir": shared_cache, "task_timeout_s": TASK_LIMIT_S}
    report = pto_core.run_case(case(tmp_path, TAKES_LONG), runtime="pto2", settings=settings)
    (error,) = report.errors
    assert NAMED in str(error)
    assert f"did not return within {TASK_LIMIT_S} s; check it for an endless loop" in str(error)


def test_a_write_past_a_buffer(tmp_path: Path, shared_cache: Path) -> None:
    past = "(*reinterpret_cast<float**>(args[0]))[16] = 1;"
    settings = {"cache_dir": shared_cache, "sim.check": True}
    report = pto_core.run_case(case(tmp_path, past), runtime="pto2", settings=settings)
    (error,) = report.errors
    assert isinstance(error, AddressError)
    assert "build.cpp:10: after kernel spoiler (func_id 0), task 1 of ring 1: " in str(error)
