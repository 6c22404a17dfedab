"""The offset of another host's clock, and its uncertainty."""

from __future__ import annotations

import time

from pto_insight.traces.worker_parts import ClockOffset

SHIFT = 5_000_000_000


def test_the_true_offset_is_within_the_uncertainty() -> None:
    delays = iter([0.004, 0.0, 0.002, 0.0, 0.001, 0.0, 0.0, 0.003])

    def read() -> int:
        there = time.monotonic_ns() + SHIFT
        time.sleep(next(delays))  # the reply takes longer than the request
        return there

    found = ClockOffset.measured(read)
    assert abs(found.ns + SHIFT) <= found.uncertainty_ns < 2_000_000
    assert next(delays, None) is None


def test_an_offset_that_drifts_is_covered() -> None:
    first, last = ClockOffset(1000, 10), ClockOffset(1400, 20)
    joined = first.joined(last)
    assert joined == ClockOffset(1205, 215)
    assert first.joined(first) == first
