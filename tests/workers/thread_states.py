"""Wait until a thread is blocked in the kernel, without a fixed pause."""

from __future__ import annotations

import os
import time
from pathlib import Path

LIMIT_S = 20
SAMPLES = 5
"""A thread that only waits for the interpreter is awake in one of several samples."""


def await_blocked(native_id: int | None, process: int | None = None) -> None:
    """Wait until a thread of a process sleeps in several samples in a row.

    The process is this one by default. Between the samples this thread releases the interpreter.
    """
    stat = Path(f"/proc/{process or os.getpid()}/task/{native_id}/stat")
    limit, asleep = time.monotonic() + LIMIT_S, 0
    while asleep < SAMPLES and time.monotonic() < limit:
        time.sleep(0.001)
        state = stat.read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
