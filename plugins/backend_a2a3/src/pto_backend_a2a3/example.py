"""The last stage of the check of a card: one task through all parts, in a process of its own.

``python -m pto_backend_a2a3.example DEVICE`` reads settings from the environment. It writes
what it found, or the class and the message of the error, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import pto_core
from pto_backend_a2a3.device_images import PROBE_KERNEL
from pto_core.chip import CoreCallable, KernelSource
from pto_core.errors import PtoError

_NUMBERS = 1000


def run_example(device: int) -> dict[str, str]:
    """Run one task of ``host_build_graph``; return the label of the device, and the result."""
    kernel = CoreCallable(KernelSource(PROBE_KERNEL), "aiv")

    def graph(rt: Any, numbers: Any, out: Any) -> None:
        rt.add_task(kernel, (numbers, out, numbers.shape[0]))

    numbers = np.arange(_NUMBERS, dtype=np.uint32)
    out = np.zeros_like(numbers)
    with pto_core.open_device("a2a3", runtime="host_build_graph", device=device) as opened:
        report = opened.run(graph, numbers, out)
    if not np.array_equal(out, 3 * numbers + 1):
        raise PtoError("the task of the example ran, but its output is wrong; report this")
    found = f"{report.tasks} task of host_build_graph wrote {out.nbytes} bytes"
    return {"label": report.device.label if report.device else "unknown", "found": found}


def main() -> None:
    """Run the example, and write its result as JSON."""
    try:
        answer = run_example(int(sys.argv[1]))
    except PtoError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
