"""Lets the tests of this folder import what they share, and asks how often to try."""

from __future__ import annotations

import gc
import os
import random
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


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
    assert set(os.listdir("/proc/self/fd")) <= before[0]  # an earlier test's may go meanwhile
    assert set(os.listdir("/dev/shm")) <= before[1]
