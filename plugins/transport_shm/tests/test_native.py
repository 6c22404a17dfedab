"""Builds the library and its native tests, plain and under sanitizers, and runs them."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
TESTS = ("mailbox_test", "stress_test", "fuzz_test")

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
                    *(tool("cmake"), "-S", PACKAGE, "-B", folder, "-G", "Ninja"),
                    *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DBUILD_TESTING=ON"),
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
    subprocess.run([build() / "native" / "tests" / name], check=True, timeout=300)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_under_sanitizers(build: Build, sanitizers: str, name: str) -> None:
    folder = build(f"PTO_SANITIZE={sanitizers}")
    subprocess.run([folder / "native" / "tests" / name], check=True, timeout=600)


def test_the_library_gives_one_symbol_and_needs_no_other_library(build: Build) -> None:
    library = build() / "libpto_transport_shm.so"
    command = ["nm", "-D", "--defined-only", "--format=posix", library]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["pto_transport_entry"]
