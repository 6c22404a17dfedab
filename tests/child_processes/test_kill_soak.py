"""The soak of .ci/nightly with random kills, short."""

from __future__ import annotations

import secrets

import kill_soak

SECONDS, WORKERS_OF_A_PROCESS = 2, 4


def test_kills_lose_nothing_and_leave_nothing() -> None:
    seed = secrets.randbits(31)
    print("first seed", seed)
    counts, faults = kill_soak.soak(SECONDS, seed, WORKERS_OF_A_PROCESS)
    assert not faults
    assert counts["runs"] > 0
