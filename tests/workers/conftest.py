"""Workers over the transport `shm`; a test fails if a Worker leaks anything."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pto_core import Worker

sys.path.insert(0, str(Path(__file__).parent))

MakeWorker = Callable[..., Worker]


@pytest.fixture
def make() -> Iterator[MakeWorker]:
    """Create Workers that are closed at the end of the test."""
    made: list[Worker] = []

    def worker(level: int = 3, **settings: Any) -> Worker:
        made.append(Worker(level, **{"heap_ring_size": 1 << 24, **settings}))
        return made[-1]

    yield worker
    for one in reversed(made):
        one.close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Require that a test leaves no child process and no open descriptor."""
    before = open_descriptors()
    yield
    assert psutil.Process().children(recursive=True) == []
    assert open_descriptors() <= before


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return both ends of a pipe; a task that reads from it waits until the test writes."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def open_descriptors() -> int:
    """Count the descriptors, except those of shared memory that the test may still use."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            name = os.readlink(descriptor)
            count += "memfd:" not in name and not name.endswith(".flight (deleted)")
    return count
