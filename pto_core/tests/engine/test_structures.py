"""Build and run the native tests of pto/engine, and of the C++ parts of Workers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, programs

SOURCES = Path(__file__).parents[2] / "native_tests"
INCLUDE = SOURCES.parent / "include"
TESTS = programs(SOURCES)
THREADED = (
    *("bell_test", "bell_watch_test", "progress_table_test", "child_end_test"),
    *("driver_test", "trace_ring_test", "drive_test", "tracer_test"),
)
AICPU_FLAGS = (
    *("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror"),
)


@pytest.mark.parametrize("name", TESTS)
def test_plain(native_build: NativeBuild, name: str) -> None:
    subprocess.run([native_build(SOURCES) / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", TESTS)
def test_under_sanitizers(native_build: NativeBuild, name: str) -> None:
    folder = native_build(SOURCES, "PTO_SANITIZE=address,undefined")
    subprocess.run([folder / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", THREADED)
def test_under_thread_sanitizer(native_build: NativeBuild, name: str) -> None:
    folder = native_build(SOURCES, "PTO_SANITIZE=thread")
    subprocess.run([folder / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize("header", sorted((INCLUDE / "pto" / "engine").glob("*.hpp")))
def test_headers_build_for_the_aicpu_alone(tmp_path: Path, header: Path) -> None:
    unit = tmp_path / "unit.cpp"
    unit.write_text(f'#include "pto/engine/{header.name}"\n')
    subprocess.run(
        ["aarch64-linux-gnu-g++", *AICPU_FLAGS, f"-I{INCLUDE}", "-c", unit, "-o", tmp_path / "o"],
        check=True,
    )
