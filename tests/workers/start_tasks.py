"""Tasks that report how their process was started; spawned children import them from here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def report(args: Any) -> None:
    """Write the process id, whether the process was spawned, and its open mappings."""
    words = " ".join(sys.orig_argv)
    args.tensor(0)[:] = (
        os.getpid(),
        "worker.processes.starting" in words,
        open_mappings(),
    )


def open_mappings() -> int:
    """Return how many descriptors of shared memory this process has."""
    links = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists()]
    return sum("memfd" in link for link in links)
