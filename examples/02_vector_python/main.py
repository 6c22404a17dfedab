"""The vector example through the Python API, under both build-graph runtimes."""

import numpy as np
from kernels.vector import graph

import pto_core

SHAPE = (128, 128)


def main() -> None:
    """Run the graph on each runtime and print the result."""
    a = np.full(SHAPE, 2.0, np.float32)
    b = np.full(SHAPE, 3.0, np.float32)
    for runtime in ("host_build_graph", "aicpu_build_graph"):
        f = np.zeros(SHAPE, np.float32)
        with pto_core.open_device("a2a3sim", runtime=runtime) as device:
            report = device.run(graph, a, b, f)
        if not (f == 42.0).all():
            raise SystemExit(f"{runtime}: expected 42 everywhere, got {f.min()} to {f.max()}")
        print(f"{runtime}: {report.tasks} tasks, every element is {f[0, 0]}")


if __name__ == "__main__":
    main()
