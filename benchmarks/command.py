"""Figures of the ``pto`` command: wall time of whole processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, wall_s
from benchmarks.machine import ROOT


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure the command and a bare interpreter, alternately."""
    pto = Path(sys.executable).with_name("pto")
    taken = interleaved(
        {
            "floor": _run(sys.executable, "-c", "pass"),
            "numpy": _run(sys.executable, "-c", "import numpy"),
            "help": _run(pto, "--help"),
            "vector": _run(pto, "run", ROOT / "examples" / "01_vector"),
        },
        effort.repeats,
    )
    yield Figure(
        "pto --help",
        "s",
        taken["help"],
        budget=0.2,
        peer_name="python -c pass",
        peer=taken["floor"],
    )
    yield Figure(
        "pto run examples/01_vector, warm cache",
        "s",
        taken["vector"],
        budget=0.5,
        peer_name="python -c 'import numpy'",
        peer=taken["numpy"],
    )


def _run(*command: object) -> Callable[[], float]:
    words = [str(word) for word in command]

    def measure() -> float:
        return wall_s(lambda: subprocess.run(words, check=True, capture_output=True, cwd=ROOT))

    return measure
