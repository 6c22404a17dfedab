"""Compare this process before and after a test: the test must leave nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60


def children() -> set[int]:
    """Return the child processes whose exit status this process must collect."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def mappings() -> int:
    return sum("pto-worker" in line for line in Path("/proc/self/maps").open())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    before = children(), descriptors(), mappings()
    yield
    gc.collect()
    assert children() == before[0]
    assert descriptors() <= before[1]  # resources of an earlier test may be released meanwhile
    assert mappings() <= before[2]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; wait a moment for a process that is ending."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.001)
    return False


@pytest.fixture(name="is_gone")
def is_gone_fixture():
    return is_gone
