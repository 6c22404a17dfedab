"""The graphs of the figures, as programs for a device."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from pto_core.chip import ChipCallable, CoreCallable, Device, KernelSource, RunReport
from pto_core.kernels import OrchestrationSource

SOURCES = Path(__file__).resolve().parent / "sources"


def chains_program(kernel: str = "empty") -> ChipCallable:
    """Return a C++ program with the arguments (tasks, chains, argument). Its tasks run a kernel."""
    return ChipCallable(
        OrchestrationSource(SOURCES / "orchestration" / "chains.cpp", "build_chains"),
        children={0: CoreCallable(KernelSource(SOURCES / f"{kernel}.cpp"), "aiv")},
        signature=("scalar", "scalar", "scalar"),
    )


def run_chains(
    device: Device, program: ChipCallable, tasks: int, chains: int, argument: int = 0, **run: Any
) -> RunReport:
    """Run ``tasks`` tasks in ``chains`` chains; with 0 chains all tasks are independent."""
    scalars = [ctypes.c_int64(value) for value in (tasks, chains, argument)]
    return device.run(program, *scalars, **run)
