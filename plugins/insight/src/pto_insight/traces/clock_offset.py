"""The offset between the monotonic clock of another host and that of this host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_READINGS = 8


class ClockOffset(NamedTuple):
    """What to add to a time of another host, and the largest error of the sum, in nanoseconds."""

    ns: int
    uncertainty_ns: int

    @classmethod
    def measured(cls, read: Callable[[], int]) -> ClockOffset:
        """Read the clock of the other host several times; keep the most precise reading.

        The other host reads its clock between the request and the reply, so the error of one
        reading is at most half of the round trip.
        """
        readings = []
        for _ in range(_READINGS):
            before = time.monotonic_ns()
            there = read()
            after = time.monotonic_ns()
            readings.append(cls((before + after) // 2 - there, (after - before + 1) // 2))
        return min(readings, key=lambda one: one.uncertainty_ns)

    def joined(self, later: ClockOffset) -> ClockOffset:
        """Return an offset that holds from this measurement to a later one, with even drift."""
        low = min(one.ns - one.uncertainty_ns for one in (self, later))
        high = max(one.ns + one.uncertainty_ns for one in (self, later))
        return ClockOffset((low + high) // 2, (high - low + 1) // 2)
