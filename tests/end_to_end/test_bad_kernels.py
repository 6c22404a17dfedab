"""Kernels that crash or never return, with every runtime and in both modes of the simulator."""

from __future__ import annotations

import signal

import pytest

import pto_core
from pto_core.errors import TaskFailedError, TaskTimeoutError

MODES = {"threads": (), "deterministic": ("--seed", "7")}
# The faults show only in the case "first". So a run of the case "second" can compile all sources.
CRASH = "if (a[0] == 2) *reinterpret_cast<volatile int*>(16) = 1;"
FOREVER = "if (a[0] == 2) for (volatile int64_t i = 0;; i = i + 1) {}"
LIMIT_S = 4


def run_case(case, runtime: str, mode: str, timeout_s: float | None = None):
    """Run the case through the API, and return its only error."""
    settings = {"cache_dir": case.cache, "sim.mode": mode}
    report = pto_core.run_case(case.folder, runtime=runtime, settings=settings, timeout_s=timeout_s)
    assert report.exit_code == 4
    (error,) = report.errors
    return error


@pytest.mark.parametrize("mode", MODES)
def test_crash(case, runtime: str, mode: str) -> None:
    done = case.kernel(CRASH).run("-r", runtime, *MODES[mode])
    assert done.returncode == 4, done.stderr
    assert "kernel 'twice' (func_id 3), task 0, on AIV " in done.stderr
    assert "crashed: ended with SIGSEGV (an invalid memory access)" in done.stderr
    error = run_case(case, runtime, mode)
    assert isinstance(error, TaskFailedError)
    assert (error.task, error.func_id, error.kernel) == (0, 3, "twice")
    assert error.signal == signal.SIGSEGV
    case.assert_all_is_well()


@pytest.mark.parametrize("mode", MODES)
def test_kernel_that_never_returns(case, runtime: str, mode: str) -> None:
    case.kernel(FOREVER)
    assert case.run("-r", runtime, "--case", "second").returncode == 0
    error = run_case(case, runtime, mode, timeout_s=LIMIT_S)
    limit = f"ended at its time limit of {LIMIT_S} s (--timeout)"
    assert f"{limit}: kernel 'twice' (func_id 3), task 0, on AIV " in str(error)
    assert "did not return; check it for an endless loop" in str(error)
    assert isinstance(error, TaskTimeoutError)
    assert isinstance(error, TimeoutError)
    assert (error.task, error.func_id, error.kernel, error.timeout_s) == (0, 3, "twice", LIMIT_S)
    case.assert_all_is_well()
