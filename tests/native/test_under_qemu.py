"""Native tests of plugins on AArch64, in an emulator: the output must be the same as here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from native_builds import CROSS, EMULATOR, NativeBuild, tool

pytestmark = pytest.mark.toolchain

PLUGINS = Path(__file__).parents[2] / "plugins"
TESTS = {
    "runtime_hbg": ("host_test", "aicpu_test", "random_test", "lanes_test"),
    "runtime_pto2": (
        *("deadlock_test", "edges_test", "library_test", "planner_test", "scheduler_test"),
        *("smallest_test", "submit_test", "tensor_test"),
    ),
    "transport_shm": ("mailbox_test", "fuzz_test"),
}
PROGRAMS = Path("native", "tests")
AARCH64 = 183  # the value of the ELF field e_machine
# Programs with threads run briefly: the number of rounds follows "all" in the arguments.
THREADED = (
    *(("runtime_hbg", "stress_test"), ("runtime_pto2", "stress_test")),
    ("runtime_pto2", "lanes_stress_test"),
)
ROUNDS = "1"
# The number of random programs in smallest_test; without the emulator it is 200.
PROGRAM_COUNT = "40"


def printed(command: list[str | Path]) -> str:
    """Run a test and return its output without addresses; a failure shows the reason."""
    variables = {"LC_ALL": "C", "PTO_TEST_SEED": "1", "PTO_PROGRAMS": PROGRAM_COUNT}
    environment = {**os.environ, **variables}
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", outcome.stdout)


@pytest.mark.parametrize(
    ("plugin", "name"), [(plugin, name) for plugin, names in TESTS.items() for name in names]
)
def test_prints_the_same_on_aarch64(native_build: NativeBuild, plugin: str, name: str) -> None:
    emulated = native_build(PLUGINS / plugin, *CROSS) / PROGRAMS / name
    header = emulated.read_bytes()[:20]
    assert int.from_bytes(header[18:20], "little") == AARCH64
    here = printed([native_build(PLUGINS / plugin) / PROGRAMS / name])
    assert here
    assert printed([tool(EMULATOR[0]), *EMULATOR[1:], emulated]) == here


@pytest.mark.parametrize(("plugin", "name"), THREADED)
def test_threads_on_aarch64(native_build: NativeBuild, plugin: str, name: str) -> None:
    """The emulator runs each thread on a thread of the host, with its own locks and atomics."""
    emulated = native_build(PLUGINS / plugin, *CROSS) / PROGRAMS / name
    assert printed([tool(EMULATOR[0]), *EMULATOR[1:], emulated, "all", ROUNDS])
