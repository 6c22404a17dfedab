"""Run graphs of the conformance kit with the C++ orchestration of a runtime in this folder.

Arguments: backend and runtime. Prints the label, the ELF machine and the program of the device.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np

import pto_core
from pto_core import ChipCallable, CoreCallable, KernelSource
from pto_core.kernels import OrchestrationSource
from pto_devkit import graphs

folder = Path(__file__).parent
backend, runtime = sys.argv[1:]
kernels = Path(graphs.__file__).with_name("kernels")
record = CoreCallable(KernelSource(kernels / "recorder.cpp"), "aiv")
source = OrchestrationSource(folder / f"{runtime}.cpp", "build_graph")
build = ChipCallable(source, {0: record})
numbers = random.Random(1)
shapes = [
    graphs.diamond(),
    graphs.chain(20),
    graphs.independent(12),
    graphs.hourglass(8),
    graphs.random_graph(numbers, 60),
]
with pto_core.open_device(backend, runtime=runtime) as device:
    for graph in shapes:
        log = np.zeros(8 + 4 * graph.tasks, np.uint64)
        edges = np.array(sorted(graph.edges, key=lambda edge: edge[1]) or [(0, 0)], np.uint64)
        report = device.run(build, log, edges, graph.tasks, len(graph.edges))
        graph.verify(log[8:].view([(n, "u8") for n in ("runs", "start", "end", "sum")]))
        assert report.tasks == graph.tasks
    process = device.process
    print(process.label, process.machine, os.readlink(f"/proc/{process.number}/exe"), sep="\n")
