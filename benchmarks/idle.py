"""The figure of an idle open device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved
from pto_core import open_device

SECONDS = 2.0
SLEEPER = """
import sys, time
before = time.process_time()
time.sleep(float(sys.argv[1]))
print(time.process_time() - before)
"""


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure processor time of a process with an open device, and of one that only sleeps."""
    seconds = SECONDS / effort.divisor
    with open_device("a2a3sim", runtime="host_build_graph"):
        taken = interleaved(
            {"device": _process_time(seconds), "floor": sleeper(seconds)},
            min(effort.repeats, 3),
        )
    yield Figure(
        "idle open device",
        "% CPU",
        taken["device"],
        budget=0.5,
        peer_name="a sleeping Python process",
        peer=taken["floor"],
    )


def _process_time(seconds: float) -> Callable[[], float]:
    def measure() -> float:
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds * 100

    return measure


def sleeper(seconds: float) -> Callable[[], float]:
    """Return the CPU use of a sleeping process, in percent of a core."""
    command = [sys.executable, "-c", SLEEPER, str(seconds)]

    def measure() -> float:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout) / seconds * 100

    return measure
