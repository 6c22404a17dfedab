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
    """The threads of this process; one that was joined is listed for a moment longer."""

    def now(self) -> set[str]:
        """The ids of the threads."""
        return set(os.listdir("/proc/self/task"))

    def since(self, before: set[str]) -> set[str]:
        """The ids of those that are not among ``before``, after some patience for what ends."""
        deadline = time.monotonic() + PATIENCE_S
        while (more := self.now() - before) and time.monotonic() < deadline:
            time.sleep(0.001)
        return more


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def device(runtime: str, tmp_path: Path) -> Iterator[Device]:
    """Whatever a test did to it, it closes without a leak."""
    settings = {"sim.check": 1, "cache_dir": tmp_path}
    with pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as opened:
        yield opened
