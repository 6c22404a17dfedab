"""Build the native tests; run them without sanitizers and with each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, symbols

PACKAGE = Path(__file__).parents[1]
PROGRAMS = Path("native", "tests")
TESTS = (
    "blocking_test",
    "checking_test",
    "deterministic_test",
    "memory_test",
    "parts_test",
    "recorder_test",
    "rings_test",
    "threads_test",
    "trace_test",
)
# The thread sanitizer has nothing to find in a program with one thread.
THREADED = tuple(name for name in TESTS if name not in ("memory_test", "recorder_test"))


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


def test_one_seed_gives_one_hash_in_two_processes(native_build: NativeBuild) -> None:
    program = native_build(PACKAGE) / PROGRAMS / "deterministic_test"

    def trace_hash(seed: int) -> str:
        command = [program, "--hash", str(seed)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert randomises_addresses()
    first = [trace_hash(seed) for seed in range(20)]
    assert [trace_hash(seed) for seed in range(20)] == first
    assert len(set(first)) == 20


def test_the_library_exports_one_function(native_build: NativeBuild) -> None:
    library = native_build(PACKAGE) / "libpto_backend_sim.so"
    assert symbols(library, "--defined-only") == {"pto_backend_entry"}


def randomises_addresses() -> bool:
    return Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0"
