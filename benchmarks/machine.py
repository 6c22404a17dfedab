"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip()


def describe() -> dict[str, Any]:
    """Return commit, CPU, cores, memory, kernel, Python and compiler."""
    dirty = " with changes" if _output("git", "status", "--porcelain") else ""
    return {
        "commit": (_output("git", "rev-parse", "--short=12", "HEAD") or "unknown") + dirty,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "compiler": _output("g++", "--version").splitlines()[0],
    }


def load() -> float:
    """Return the average number of runnable processes over the last minute."""
    return round(os.getloadavg()[0], 2)
