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
@pytest.mark.parametrize(
    ("sanitizers", "name"),
    [
        *(("address,undefined", name) for name in TESTS),
        ("thread", "stress_test"),  # the other programs have one thread
    ],
)
def test_under_sanitizers(native_build: NativeBuild, sanitizers: str, name: str) -> None:
    folder = native_build(PACKAGE, f"PTO_SANITIZE={sanitizers}")
    subprocess.run([folder / PROGRAMS / name], check=True, timeout=900)


def test_every_program_with_threads_runs_under_the_thread_sanitizer() -> None:
    folder = PACKAGE / "native" / "tests"
    header = "threads_platform.hpp"  # the only one that starts threads
    threaded = [name for name in TESTS if header in (folder / f"{name}.cpp").read_text()]
    assert threaded == ["stress_test"]


@pytest.mark.toolchain
def test_planted_bug_is_found(native_build: NativeBuild) -> None:
    for name in ("random_test", "stress_test"):
        folder = native_build(PACKAGE, "PTO_PLANT_LOST_EDGE=ON", target=name)
        outcome = subprocess.run([folder / PROGRAMS / name], capture_output=True)
        assert outcome.returncode == 1, outcome.stdout[-500:]
