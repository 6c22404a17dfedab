"""A short run of the soak test of .ci/nightly with random kills."""

from __future__ import annotations

import secrets

import kill_soak

SECONDS, WORKERS_OF_A_PROCESS = 2, 4
TRIES_MAX = 10


def test_kills_lose_no_task_and_leave_no_resource() -> None:
    """On a busy machine, a kill may precede each first run; the soak is then repeated."""
    seed = secrets.randbits(31)
    print("first seed", seed)
    for _ in range(TRIES_MAX):
        counts, faults = kill_soak.soak(SECONDS, seed, WORKERS_OF_A_PROCESS)
        assert not faults
        if counts["runs"]:
            return
        seed = counts["seeds"]
    raise AssertionError("there was no run")
