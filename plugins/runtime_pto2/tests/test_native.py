"""Build the library and native tests and run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, programs

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]
SOURCES = PACKAGE / "native" / "src"
PROGRAMS = Path("native", "tests")
SIMULATOR = ROOT / "plugins" / "backend_sim"
ASAN, TSAN = ("PTO_SANITIZE=address,undefined",), ("PTO_SANITIZE=thread",)
TESTS = programs(PACKAGE / "native" / "tests")
# no sanitizer for interleaving_test, because it steps through machine code
SANITIZED = tuple(name for name in TESTS if name != "interleaving_test")
# The thread sanitizer has nothing to find in a program with one thread.
THREADED = ("lanes_stress_test", "stress_test")
# For each planted bug, the test of lanes_stress_test that finds it. Each round begins with another
# seed.
PLANTS = {
    "LOST_WAKEUP": "no_wake_up_is_lost",
    "DOUBLE_COUNT": "three_schedulers_small_window",
    "EARLY_RECLAIM": "three_schedulers_small_window",
    "TRUNCATED_FANIN": "three_schedulers_and_many_cores",
}
ROUNDS = 10
MISSED_AT_MOST = 1
# The leak checker crashes on the thread-local blocks of many libraries.
LEAK_OPTIONS = f"use_tls=0:suppressions={PACKAGE / 'native' / 'tests' / 'leaks.supp'}"


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
    subprocess.run(
        [folder / PROGRAMS / name],
        check=True,
        timeout=900,
        env={**os.environ, "LSAN_OPTIONS": LEAK_OPTIONS},
    )


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="plain"),
        pytest.param(ASAN, id="address", marks=pytest.mark.toolchain),
        pytest.param(TSAN, id="thread", marks=pytest.mark.toolchain),
    ],
)
def test_on_the_simulators_threads(native_build: NativeBuild, settings: tuple[str, ...]) -> None:
    """Both libraries are built with the same sanitizer, so it sees all accesses to shared data."""
    program = native_build(PACKAGE, *settings) / PROGRAMS / "on_simulator"
    simulator = native_build(SIMULATOR, *settings) / "libpto_backend_sim.so"
    subprocess.run(
        [program, simulator, "20"],
        check=True,
        timeout=900,
        env={**os.environ, "LSAN_OPTIONS": LEAK_OPTIONS},
    )


@pytest.mark.toolchain
@pytest.mark.parametrize("plant", PLANTS)
def test_planted_bug_is_found(native_build: NativeBuild, plant: str) -> None:
    target = f"planted_{plant}"
    program = native_build(PACKAGE, target=target) / PROGRAMS / target

    def is_found(repeats: int, seed: int) -> bool:
        command = [program, PLANTS[plant], str(repeats), str(seed)]
        outcome = subprocess.run(command, capture_output=True, timeout=300)
        assert outcome.returncode in (0, 1), outcome.stdout[-500:] + outcome.stderr[-500:]
        return outcome.returncode == 1

    missed = 0
    for number in range(ROUNDS):
        seed = 1 + 1000 * number
        # On a busy machine, two threads rarely run at the same time, so the second attempt is
        # longer.
        missed += not (is_found(40, seed) or is_found(160, seed + 500))
    assert missed <= MISSED_AT_MOST


def test_every_program_with_threads_runs_under_the_thread_sanitizer() -> None:
    folder = PACKAGE / "native" / "tests"
    header = "threads_platform.hpp"  # programs include it for their threads
    threaded = [name for name in TESTS if header in (folder / f"{name}.cpp").read_text()]
    assert threaded == list(THREADED)


def test_every_plant_has_a_test() -> None:
    switches: set[str] = set()
    for path in SOURCES.iterdir():
        for line in path.read_text().splitlines():
            words = line.split()
            if line.startswith("#if"):
                switches.update(word for word in words if word.startswith("PTO_PLANT_"))
    assert switches == {f"PTO_PLANT_{plant}" for plant in PLANTS}


def test_only_the_orchestrators_wait_looks_at_the_clock() -> None:
    """Statistics and the log line about a long wait need a clock; deadlock proofs need none."""
    looking = {path.name for path in SOURCES.iterdir() if "now(" in path.read_text()}
    assert looking == {"space_wait.cpp"}
    proof = (SOURCES / "space_wait.cpp").read_text().partition("Proof SpaceWait::proof()")[2]
    assert "now" not in proof.partition("\n}\n")[0]


def test_the_states_page_is_what_the_tables_say(native_build: NativeBuild) -> None:
    page = subprocess.run(
        [native_build(PACKAGE) / PROGRAMS / "states_page"],
        check=True,
        capture_output=True,
        text=True,
    )
    level_2 = (ROOT / "docs" / "states.md").read_text().partition("\n## Level 3")[0]
    assert level_2 == page.stdout, (
        "docs/states.md is outdated; write it with the program states_page of the native tests"
    )
