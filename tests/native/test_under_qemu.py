"""Native tests of plugins on AArch64, under an emulator: they print what they print here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

PLUGINS = Path(__file__).parents[2] / "plugins"
TESTS = {
    "runtime_hbg": ("host_test", "aicpu_test", "random_test", "lanes_test"),
    "runtime_pto2": (
        *("checks_test", "deadlock_test", "edges_test", "library_test", "memory_test"),
        *("planner_test", "report_test", "scheduler_test", "sizing_test", "smallest_test"),
        *("states_test", "statistics_test", "submit_test", "tensor_map_test", "tensor_test"),
    ),
    "transport_shm": ("mailbox_test", "fuzz_test"),
}
CROSS = (
    *("CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=aarch64"),
    *("CMAKE_C_COMPILER=aarch64-linux-gnu-gcc", "CMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"),
)
# Libraries are loaded at run time, so the programs are not static: the emulator needs a root.
EMULATOR = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")
AARCH64 = 183  # e_machine

Build = Callable[..., Path]


def tool(name: str) -> str:
    """Find a build tool beside this Python, or on the path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found is not None, f"{name} is needed; .ci/install-toolchain installs it"
    return found


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build the tests of a plugin with CMake settings, once; gives the folder of the programs."""
    built: dict[tuple[str, ...], Path] = {}

    def make(plugin: str, *settings: str) -> Path:
        key = (plugin, *settings)
        if key not in built:
            folder = tmp_path_factory.mktemp(plugin)
            subprocess.run(
                [
                    *(tool("cmake"), "-S", PLUGINS / plugin, "-B", folder, "-G", "Ninja"),
                    *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DBUILD_TESTING=ON"),
                    *(f"-D{setting}" for setting in settings),
                ],
                check=True,
            )
            subprocess.run([tool("cmake"), "--build", folder, "--parallel", "2"], check=True)
            built[key] = folder / "native" / "tests"
        return built[key]

    return make


def printed(command: list[str | Path]) -> str:
    """Run a test, give what it prints, addresses aside; a failure says why."""
    environment = {**os.environ, "LC_ALL": "C", "PTO_TEST_SEED": "1"}
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", outcome.stdout)


@pytest.mark.parametrize(
    ("plugin", "name"), [(plugin, name) for plugin, names in TESTS.items() for name in names]
)
def test_prints_the_same_on_aarch64(build: Build, plugin: str, name: str) -> None:
    emulated = build(plugin, *CROSS) / name
    header = emulated.read_bytes()[:20]
    assert int.from_bytes(header[18:20], "little") == AARCH64
    here = printed([build(plugin) / name])
    assert here
    assert printed([tool(EMULATOR[0]), *EMULATOR[1:], emulated]) == here
