"""The inequality of the lease, in exact numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pto_core.errors import UsageError
from pto_transport_zmq.remote.lease import (
    DRIFT_PARTS,
    ENDING_NS,
    LONGEST_NS,
    MILLISECOND,
    SECOND,
    SHORTEST_NS,
    Lease,
)

DURATIONS = [SHORTEST_NS, SHORTEST_NS + 1, 3 * SECOND, 12_345_678_901, LONGEST_NS]


# Invariant: A relay waits longer than the slowest gateway needs to end, if both clocks drift by at
# most 1 %.
@pytest.mark.parametrize("duration_ns", DURATIONS)
def test_a_relay_with_a_fast_clock_waits_for_a_gateway_with_a_slow_clock(duration_ns):
    drift = Fraction(1, DRIFT_PARTS)
    lease = Lease(duration_ns)
    gateway_real_ns = Fraction(lease.gateway_ns) / (1 - drift) + ENDING_NS
    relay_real_ns = Fraction(lease.relay_ns) / (1 + drift)
    assert gateway_real_ns <= relay_real_ns < gateway_real_ns + 1


def test_the_default_lease():
    lease = Lease()
    assert lease.duration_ns == 3 * SECOND
    assert lease.heartbeat_ns == 300 * MILLISECOND
    assert lease.gateway_ns == 3900 * MILLISECOND
    assert lease.relay_ns == 4_483_787_879


@pytest.mark.parametrize("duration_ns", [0, -1, SHORTEST_NS - 1, LONGEST_NS + 1])
def test_a_lease_has_limits(duration_ns):
    with pytest.raises(UsageError, match=f"a lease of {duration_ns} ns is outside"):
        Lease(duration_ns)
