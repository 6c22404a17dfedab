"""The clock of leases: it advances while the machine is suspended."""

from __future__ import annotations

import time


def now_ns() -> int:
    """Return the time in nanoseconds, from an arbitrary origin."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
