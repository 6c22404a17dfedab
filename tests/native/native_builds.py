"""The native builds that tests run; each configuration is built once for a checkout.

The build folders are in build/native_tests/. The build system updates them, so a second call
compiles only what changed. A lock lets test processes share them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ROOT / "build" / "native_tests"
FOLDERS = (
    ROOT / "pto_core" / "native_tests",
    *sorted(
        path.parent
        for path in (ROOT / "plugins").glob("*/CMakeLists.txt")
        if "BUILD_TESTING" in path.read_text()
    ),
)
"""The folders with native tests."""
# Builds for tests take long to compile: -O0 takes two thirds of the time of -O1, and that 70 to 80%
# of the time of -O2. Plain builds have -O1, because stress tests need fast code; users' builds have
# -O2, and tests in Python run those. Under the sanitizers of addresses and undefined behaviour -O0
# is enough. A report still needs line numbers. GCC reports uninitialised values reliably only with
# -O2.
PLAIN = "-O1 -Wno-maybe-uninitialized -DNDEBUG"
THREADS = f"{PLAIN} -g1"
ADDRESSES = "-O0 -DNDEBUG -g1"

# The settings of a build for AArch64, and the command that runs its programs here.
CROSS = (
    *("CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=aarch64"),
    *("CMAKE_C_COMPILER=aarch64-linux-gnu-gcc", "CMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"),
)
# Libraries are loaded at run time, so the programs are not static, and the emulator needs a root
# folder.
EMULATOR = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")

# The arguments are a folder with a CMakeLists.txt and CMake settings; `target` is the name of one
# program.
NativeBuild = Callable[..., Path]


def tool(name: str) -> str:
    """Find a build tool in the folder of this Python, or on the path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found is not None, f"{name} is needed; .ci/install-toolchain installs it"
    return found


def symbols(library: Path, which: str, nm: str = "nm") -> set[str]:
    """Return the symbols of a library, with ``--undefined-only`` or ``--defined-only``."""
    listed = subprocess.run(
        [nm, "-D", which, "--format=posix", library], check=True, capture_output=True, text=True
    )
    return {line.split()[0].split("@")[0] for line in listed.stdout.splitlines()}


def programs(folder: Path) -> tuple[str, ...]:
    """Return the test programs of a folder; other test files are linked into one of them."""
    files = sorted(folder.glob("*_test.cpp"))
    return tuple(path.stem for path in files if "int main(" in path.read_text())


def flags(settings: tuple[str, ...]) -> str:
    text = " ".join(settings)
    if "PTO_SANITIZE=" in text:
        return THREADS if "PTO_SANITIZE=thread" in text else ADDRESSES
    return PLAIN


def build_once(source: Path, settings: tuple[str, ...], target: str) -> Path:
    """Configure and build under a lock of this folder; return the build folder."""
    options = ["BUILD_TESTING=ON", "CMAKE_BUILD_TYPE=Test", "CMAKE_UNITY_BUILD=ON", *settings]
    options += [f"CMAKE_{language}_FLAGS_TEST={flags(settings)}" for language in ("C", "CXX")]
    digest = hashlib.sha256("\n".join([str(source), *options]).encode()).hexdigest()[:8]
    words = [source.relative_to(ROOT).as_posix(), *settings[:1], digest]
    folder = BUILDS / re.sub(r"[^\w.]+", "-", " ".join(words))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            [
                *(tool("cmake"), "-S", source, "-B", folder, "-G", "Ninja"),
                *(f"-D{option}" for option in options),
                f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            ],
            check=True,
        )
        # Other tests use the other processors.
        compilers = "1" if "PYTEST_XDIST_WORKER" in os.environ else "2"
        command = [tool("cmake"), "--build", folder, "--parallel", compilers, "--target", target]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="session")
def native_build() -> NativeBuild:
    """Build the native tests in ``source`` with CMake settings, once; return the build folder."""
    built: dict[tuple[Path, tuple[str, ...], str], Path] = {}

    def make(source: Path, *settings: str, target: str = "all") -> Path:
        key = (source, settings, target)
        if key not in built:
            built[key] = build_once(*key)
        return built[key]

    return make


if __name__ == "__main__":  # the arguments are CMake settings
    for source in FOLDERS:
        build_once(source, tuple(sys.argv[1:]), "all")
