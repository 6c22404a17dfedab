"""An open device of the simulator, under each build-graph runtime."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pto_core
from pto_core import Device

PATIENCE_S = 60
RUNTIMES = ("host_build_graph", "aicpu_build_graph")


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Threads:
    """The threads of this process; the system lists a joined thread for a moment longer."""

    def now(self) -> set[str]:
        """Return the ids of the threads."""
        return set(os.listdir("/proc/self/task"))

    def since(self, before: set[str]) -> set[str]:
        """Return the ids of new threads; wait a moment for threads that are ending."""
        deadline = time.monotonic() + PATIENCE_S
        while (more := self.now() - before) and time.monotonic() < deadline:
            time.sleep(0.001)
        return more


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def device(runtime: str, shared_cache: Path) -> Iterator[Device]:
    """Open a device; require after the test that it closes without a leak."""
    settings = {"sim.check": 1, "cache_dir": shared_cache}
    with pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as opened:
        yield opened
