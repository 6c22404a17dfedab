"""Lets the tests of this folder import what they share: programs, and a world to run them in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["ReferenceEngine", "NativeEngine"])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test with rigs of each kind."""
    from hierarchy_rig import Rig

    from pto_core.hierarchy import engine

    monkeypatch.setattr(Rig, "engine_type", getattr(engine, request.param))
