"""The deterministic mode end to end: a seed determines the trace and repeats a bug."""

# Invariant of this file: In deterministic mode the order depends only on the seed. The trace hash
# contains no address, time or thread.

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from native_builds import NativeBuild

FOLDER = Path(__file__).parent
ROOT = Path(__file__).resolve().parents[2]
SWEEPS = {
    "host_build_graph": ("sweep.py", "host_build_graph"),
    "aicpu_build_graph": ("sweep.py", "aicpu_build_graph"),
    "tensormap_and_ringbuffer": ("sweep_rings.py",),
}
RUNTIMES = tuple(SWEEPS)
SEEDS = 100
FIRST_SEEDS = (0, 1 << 16)
"""Half of the seeds begin at each. They have equal traces if only the lower 16 bits count."""
SEEDS_UNTIL_FOUND = 1000
SEEDS_AT_FULL_COUNT = 10_000
SEEDS_OF_A_PROCESS = 1000


def sweep(
    runtime: str, first: int, last: int, library: Path | None = None
) -> list[tuple[str, ...]]:
    """Return (seed, hash, result) for each seed, from a new process."""
    script, *words = SWEEPS[runtime]
    libraries = [library] if library else []
    done = subprocess.run(
        [sys.executable, FOLDER / script, *words, str(first), str(last), *libraries],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_seed_has_one_trace_in_two_new_processes(runtime: str) -> None:
    randomised = Path("/proc/sys/kernel/randomize_va_space").read_text().strip()
    assert randomised != "0", "address randomisation is off on this machine; switch it on"
    first, second = (sweep(runtime, 40, 60) for _ in range(2))
    assert first == second
    assert len(first) == 20


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_at_least_nine_of_ten_seeds_have_distinct_traces(
    runtime: str, request: pytest.FixtureRequest
) -> None:
    """Test 100 seeds; with --full, 10,000. The rings of the programs with rings are minimal."""
    seeds = SEEDS_AT_FULL_COUNT if request.config.getoption("full") else SEEDS
    results = []
    for begin in FIRST_SEEDS:
        end = begin + seeds // len(FIRST_SEEDS)
        for first in range(begin, end, SEEDS_OF_A_PROCESS):
            results += sweep(runtime, first, min(end, first + SEEDS_OF_A_PROCESS))
    assert len({seed for seed, _, _ in results}) == seeds
    assert {verdict for _, _, verdict in results} == {"ok"}
    assert len({trace for _, trace, _ in results}) >= 0.9 * seeds


@pytest.fixture(scope="module")
def planted(native_build: NativeBuild) -> Path:
    """A host_build_graph library that releases a task before its last edge is satisfied."""
    source = ROOT / "plugins" / "runtime_hbg"
    folder = native_build(source, "PTO_PLANT_LOST_EDGE=ON", target="pto_host_build_graph")
    return folder / "native" / "libpto_host_build_graph.so"


def test_a_planted_bug_is_found_and_its_seed_reproduces_it(planted: Path) -> None:
    found = sweep("host_build_graph", 0, SEEDS_UNTIL_FOUND, planted)[-1]
    print("seed, trace and broken edge:", found)
    assert found[2] != "ok", f"{SEEDS_UNTIL_FOUND} seeds did not find the planted bug"
    seed = int(found[0])
    assert sweep("host_build_graph", seed, seed + 1, planted) == [found]
