"""Build the native tests; run them without sanitizers and with each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, symbols

PACKAGE = Path(__file__).parents[1]
PROGRAMS = Path("native", "tests")
SANITIZED = ("mailbox_test", "stress_test", "fuzz_test")
# not under sanitizers, because it steps through machine code
TESTS = (*SANITIZED, "interleaving_test")
THREADED = ("stress_test",)  # the other programs have one thread


@pytest.mark.parametrize("name", TESTS)
def test_plain(native_build: NativeBuild, name: str) -> None:
    subprocess.run([native_build(PACKAGE) / PROGRAMS / name], check=True, timeout=900)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("sanitizers", "name"),
    [
        *(("address,undefined", name) for name in SANITIZED),
        *(("thread", name) for name in THREADED),
    ],
)
def test_under_sanitizers(native_build: NativeBuild, sanitizers: str, name: str) -> None:
    folder = native_build(PACKAGE, f"PTO_SANITIZE={sanitizers}")
    subprocess.run([folder / PROGRAMS / name], check=True, timeout=900)


def test_the_library_gives_one_symbol(native_build: NativeBuild) -> None:
    library = native_build(PACKAGE) / "libpto_transport_shm.so"
    assert symbols(library, "--defined-only") == {"pto_transport_entry"}
