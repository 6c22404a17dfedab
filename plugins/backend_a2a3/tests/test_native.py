"""Build the native tests; run them without sanitizers, with each one, and with planted faults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, tool

PACKAGE = Path(__file__).parents[1]
NATIVE = PACKAGE / "native"
ROOT = PACKAGE.parents[1]
PROGRAMS = Path("native", "tests")
TESTS = (
    "bindings_test",
    "card_test",
    "core_test",
    "device_parts_test",
    "dump_test",
    "fake_driver_test",
    "fault_matrix_test",
    "hardware_test",
    "linked_code_test",
    "model_test",
)
# The thread sanitizer has nothing to find in a program with one thread.
THREADED = tuple(name for name in TESTS if name != "model_test")

# Mutants of the templates in native/core that the model of the memory does not cover: file, text,
# replacement. test_model.py has the others.
MUTANTS = {
    "sequence numbers wrap to 0": (
        "core_link.hpp",
        "sequence_ == PTO_SEQUENCE_MAX ? 1 : sequence_ + 1",
        "sequence_ == PTO_SEQUENCE_MAX ? 0 : sequence_ + 1",
    ),
    "a core is closed whose doorbell asks it to leave": (
        "core_link.hpp",
        "    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, idle_);\n    Access",
        "    Access",
    ),
    "the base of the flags is not set": (
        "executor.hpp",
        "    Access::set_flag_base(flag_base_);\n",
        "",
    ),
}


@pytest.mark.parametrize("name", TESTS)
def test_plain(native_build: NativeBuild, name: str) -> None:
    subprocess.run([native_build(PACKAGE) / PROGRAMS / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("sanitizers", "name"),
    [
        *(("address,undefined", name) for name in TESTS),
        *(("thread", name) for name in THREADED),
    ],
)
def test_under_sanitizers(native_build: NativeBuild, sanitizers: str, name: str) -> None:
    folder = native_build(PACKAGE, f"PTO_SANITIZE={sanitizers}")
    subprocess.run([folder / PROGRAMS / name], check=True, timeout=900)


def build_core_test(folder: Path) -> Path:
    """Compile core_test with the templates in ``folder``."""
    program = folder / "core_test"
    includes = (folder, NATIVE, ROOT / "tests" / "native", ROOT / "pto_core" / "include")
    subprocess.run(
        [
            *(tool("g++"), "-std=c++20", "-O1", "-pthread"),
            *(f"-I{path}" for path in includes),
            *(NATIVE / "tests" / "core_test.cpp", "-o", program),
        ],
        check=True,
    )
    return program


def passes(program: Path) -> bool:
    try:
        return subprocess.run([program], capture_output=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.toolchain
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_core_test_fails_with_a_planted_fault(mutant: str, tmp_path: Path) -> None:
    file, text, replacement = MUTANTS[mutant]
    shutil.copytree(NATIVE / "core", tmp_path / "core")
    source = (tmp_path / "core" / file).read_text()
    assert source.count(text) == 1
    (tmp_path / "core" / file).write_text(source.replace(text, replacement))
    assert not passes(build_core_test(tmp_path))


@pytest.mark.toolchain
def test_the_core_test_passes_without_a_planted_fault(tmp_path: Path) -> None:
    assert passes(build_core_test(tmp_path))
