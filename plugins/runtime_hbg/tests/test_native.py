"""Builds the libraries and native tests and runs them; audits what the libraries need."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE / "native" / "src"
INCLUDES = (
    PACKAGE.parents[1] / "pto_core" / "include",
    PACKAGE / "src" / "pto_runtime_hbg" / "include" / "calls",
)
VARIANTS = ("host_build_graph", "aicpu_build_graph")
TESTS = ("host_test", "aicpu_test", "random_test", "lanes_test", "stress_test")
AICPU_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    *("-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
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


def test_planted_bug_is_found(build: Build) -> None:
    folder = build("PTO_PLANT_LOST_EDGE=ON")
    for name in ("random_test", "stress_test"):
        outcome = subprocess.run([folder / "native" / "tests" / name], capture_output=True)
        assert outcome.returncode == 1, outcome.stdout[-500:]


def symbols(nm: str, library: Path, which: str) -> set[str]:
    listed = subprocess.run(
        [nm, "-D", which, "--format=posix", library], check=True, capture_output=True, text=True
    )
    return {line.split()[0].split("@")[0] for line in listed.stdout.splitlines()}


def allowed_symbols() -> set[str]:
    lines = (PACKAGE / "native" / "allowed_symbols.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("variant", VARIANTS)
def test_libraries_take_and_give_only_what_is_allowed(build: Build, variant: str) -> None:
    library = build() / "native" / f"libpto_{variant}.so"
    assert symbols("nm", library, "--undefined-only") <= allowed_symbols()
    assert symbols("nm", library, "--defined-only") == {"pto_runtime_entry"}


@pytest.mark.toolchain
@pytest.mark.parametrize("variant", VARIANTS)
def test_sources_build_for_the_aicpu(tmp_path: Path, variant: str) -> None:
    library = tmp_path / f"libpto_{variant}.so"
    other = next(name for name in VARIANTS if name != variant)
    sources = [path for path in sorted(SOURCES.glob("*.cpp")) if path.stem != other]
    subprocess.run(
        [
            *("aarch64-linux-gnu-g++", "-shared", "-nostdlib", "-mno-outline-atomics"),
            *(*AICPU_FLAGS, *(f"-I{path}" for path in INCLUDES), *sources),
            *("-o", library, "-lc", "-lgcc"),
        ],
        check=True,
    )
    assert symbols("aarch64-linux-gnu-nm", library, "--undefined-only") <= allowed_symbols()
