"""The number of repetitions of a test, and the check that a test leaves no resource."""

from __future__ import annotations

import gc
import os
import random
import secrets
from collections.abc import Iterator

import pytest


@pytest.fixture
def repetitions(request: pytest.FixtureRequest) -> int:
    return 100 if request.config.getoption("--full") else 5


@pytest.fixture
def random_() -> random.Random:
    seed = secrets.randbits(32)
    print("seed", seed)
    return random.Random(seed)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    before = set(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    yield
    # a subset, because resources of an earlier test may have been released meanwhile
    assert set(os.listdir("/proc/self/fd")) <= before[0]
    assert set(os.listdir("/dev/shm")) <= before[1]
