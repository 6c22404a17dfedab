"""Build the libraries and native tests and run them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild

PACKAGE = Path(__file__).parents[1]
PROGRAMS = Path("native", "tests")
TESTS = ("host_test", "aicpu_test", "image_test", "random_test", "lanes_test", "stress_test")


@pytest.mark.parametrize("name", TESTS)
def test_plain(native_build: NativeBuild, name: str) -> None:
    subprocess.run([native_build(PACKAGE) / PROGRAMS / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_under_sanitizers(native_build: NativeBuild, sanitizers: str, name: str) -> None:
    folder = native_build(PACKAGE, f"PTO_SANITIZE={sanitizers}")
    subprocess.run([folder / PROGRAMS / name], check=True, timeout=900)


@pytest.mark.toolchain
def test_planted_bug_is_found(native_build: NativeBuild) -> None:
    for name in ("random_test", "stress_test"):
        folder = native_build(PACKAGE, "PTO_PLANT_LOST_EDGE=ON", target=name)
        outcome = subprocess.run([folder / PROGRAMS / name], capture_output=True)
        assert outcome.returncode == 1, outcome.stdout[-500:]
