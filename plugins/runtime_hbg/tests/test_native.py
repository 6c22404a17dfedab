"""Build the libraries and native tests, run the tests, and check the symbols of the libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, allowed_symbols, symbols

PACKAGE = Path(__file__).parents[1]
PROGRAMS = Path("native", "tests")
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


# Invariant: A runtime library needs only the ABI and a checked-in list of C functions.
@pytest.mark.parametrize("variant", VARIANTS)
def test_libraries_use_and_export_only_allowed_symbols(
    native_build: NativeBuild, variant: str
) -> None:
    library = native_build(PACKAGE) / "native" / f"libpto_{variant}.so"
    assert symbols(library, "--undefined-only") <= allowed_symbols(PACKAGE)
    assert symbols(library, "--defined-only") == {"pto_runtime_entry"}


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
    taken = symbols(library, "--undefined-only", nm="aarch64-linux-gnu-nm")
    assert taken <= allowed_symbols(PACKAGE)
