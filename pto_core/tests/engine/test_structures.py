"""Builds and runs the native tests of pto/engine, and of the hierarchy below its binding."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "native_tests"
INCLUDE = SOURCES.parent / "include"
TESTS = (
    *("heap_ring_test", "scope_stack_test", "region_index_test", "region_property_test"),
    *("bell_test", "board_test", "blob_test", "driver_test", "engine_test"),
)
THREADED = ("bell_test", "board_test", "driver_test")
AICPU_FLAGS = (
    *("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror"),
)

Build = Callable[..., Path]


def tool(name: str) -> str:
    """Find a build tool beside this Python, or on the path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found is not None, f"{name} is needed; install it with pip or apt"
    return found


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build everything with the given CMake settings, once; gives the build folder."""
    built: dict[tuple[str, ...], Path] = {}

    def make(*settings: str) -> Path:
        if settings not in built:
            folder = tmp_path_factory.mktemp("build")
            subprocess.run(
                [
                    *(tool("cmake"), "-S", SOURCES, "-B", folder, "-G", "Ninja"),
                    f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
                    *(f"-D{setting}" for setting in settings),
                ],
                check=True,
            )
            subprocess.run([tool("cmake"), "--build", folder, "--parallel", "2"], check=True)
            built[settings] = folder
        return built[settings]

    return make


@pytest.mark.parametrize("name", TESTS)
def test_plain(build: Build, name: str) -> None:
    subprocess.run([build() / name], check=True, timeout=300)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", TESTS)
def test_under_sanitizers(build: Build, name: str) -> None:
    folder = build("PTO_SANITIZE=address,undefined")
    subprocess.run([folder / name], check=True, timeout=600)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", THREADED)
def test_under_thread_sanitizer(build: Build, name: str) -> None:
    folder = build("PTO_SANITIZE=thread")
    subprocess.run([folder / name], check=True, timeout=600)


@pytest.mark.toolchain
@pytest.mark.parametrize("header", sorted((INCLUDE / "pto" / "engine").glob("*.hpp")))
def test_headers_build_for_the_aicpu_alone(tmp_path: Path, header: Path) -> None:
    unit = tmp_path / "unit.cpp"
    unit.write_text(f'#include "pto/engine/{header.name}"\n')
    subprocess.run(
        ["aarch64-linux-gnu-g++", *AICPU_FLAGS, f"-I{INCLUDE}", "-c", unit, "-o", tmp_path / "o"],
        check=True,
    )
