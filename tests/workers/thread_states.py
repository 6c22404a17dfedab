"""Wait until a thread is blocked in the kernel."""

from __future__ import annotations

import time
from pathlib import Path

LIMIT_S = 20
SAMPLES = 5
"""The number of samples. A thread that only waits for the GIL is awake in some of them."""


def await_blocked(native_id: int | None, samples: int = SAMPLES) -> None:
    """Wait until a thread of this process sleeps in several samples in a row, or has ended.

    This thread releases the GIL between the samples.
    """
    stat = Path(f"/proc/self/task/{native_id}/stat")
    limit, asleep = time.monotonic() + LIMIT_S, 0
    while asleep < samples and time.monotonic() < limit:
        time.sleep(0.001)
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        asleep = asleep + 1 if state == "S" else 0
