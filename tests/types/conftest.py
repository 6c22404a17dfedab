"""Make the test files of this folder importable, and share what mypy has read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def cache() -> Path:
    """Return the cache folder of `.ci/types`: mypy reads the packages and NumPy once for both."""
    return ROOT / ".mypy_cache"
