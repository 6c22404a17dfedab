"""Short runs of the soak tests of .ci/nightly."""

from __future__ import annotations

import secrets

import soak

SECONDS = 2
TASKS = 50_000


def test_random_programs_for_a_while() -> None:
    seed = secrets.randbits(31)
    print("first seed", seed)
    assert soak.run_programs(SECONDS, seed) > 0


def test_a_long_run_in_constant_memory() -> None:
    assert soak.run_tasks(TASKS) < soak.GROWTH_BYTES
