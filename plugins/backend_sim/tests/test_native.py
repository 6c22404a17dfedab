"""Builds the native tests and runs them, plainly and under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
TESTS = (
    "blocking_test",
    "checking_test",
    "deterministic_test",
    "memory_test",
    "parts_test",
    "rings_test",
    "threads_test",
)

Build = Callable[[str], Path]


def tool(name: str) -> str:
    """Find a build tool beside this Python, or on the path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found is not None, f"{name} is needed; install it with pip install {name}"
    return found


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build all tests with the given sanitizers, once; gives the folder of the binaries."""
    built: dict[str, Path] = {}

    def make(sanitizers: str) -> Path:
        if sanitizers not in built:
            folder = tmp_path_factory.mktemp("build")
            subprocess.run(
                [
                    *(tool("cmake"), "-S", PACKAGE, "-B", folder, "-G", "Ninja"),
                    f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
                    "-DBUILD_TESTING=ON",
                    f"-DPTO_SANITIZE={sanitizers}",
                ],
                check=True,
            )
            subprocess.run([tool("cmake"), "--build", folder, "--parallel", "2"], check=True)
            built[sanitizers] = folder / "native" / "tests"
        return built[sanitizers]

    return make


@pytest.mark.parametrize("name", TESTS)
def test_plain(build: Build, name: str) -> None:
    subprocess.run([build("") / name], check=True, timeout=300)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_under_sanitizers(build: Build, sanitizers: str, name: str) -> None:
    subprocess.run([build(sanitizers) / name], check=True, timeout=300)


def test_one_seed_gives_one_hash_in_two_processes(build: Build) -> None:
    def trace_hash(seed: int) -> str:
        command = [build("") / "deterministic_test", "--hash", str(seed)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert randomises_addresses()
    first = [trace_hash(seed) for seed in range(20)]
    assert [trace_hash(seed) for seed in range(20)] == first
    assert len(set(first)) == 20


def test_the_library_exports_one_function(build: Build) -> None:
    library = build("").parents[1] / "libpto_backend_sim.so"
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library],
        check=True,
        capture_output=True,
        text=True,
    )
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert names == {"pto_backend_entry"}


def randomises_addresses() -> bool:
    return Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0"
