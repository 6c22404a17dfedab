"""Make the shared modules of this folder importable: programs, and simulated children."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["ReferenceEngine", "NativeEngine"])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test once with the reference engine and once with the native engine."""
    from engine_rig import Rig

    from pto_devkit import engine

    monkeypatch.setattr(Rig, "engine_type", getattr(engine, request.param))
