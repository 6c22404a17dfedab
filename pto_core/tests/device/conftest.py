"""An open device of the simulator, under each build-graph runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pto_core
from pto_core import Device

RUNTIMES = ("host_build_graph", "aicpu_build_graph")


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def device(runtime: str, tmp_path: Path) -> Iterator[Device]:
    """Whatever a test did to it, it closes without a leak."""
    settings = {"sim.check": 1, "cache_dir": tmp_path}
    with pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as opened:
        yield opened
