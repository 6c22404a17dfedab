"""The vector example with Python tasks, under the runtime that finds the edges."""

import numpy as np
from kernels.tasks import graph

import pto_core

SHAPE = (128, 128)


def main() -> None:
    """Run the graph and print the result."""
    a = np.full(SHAPE, 2.0, np.float32)
    b = np.full(SHAPE, 3.0, np.float32)
    f = np.zeros(SHAPE, np.float32)
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        report = device.run(graph, a, b, f)
    if not (f == 42.0).all():
        raise SystemExit(f"expected 42 everywhere, got {f.min()} to {f.max()}")
    print(f"{report.tasks} tasks, every element is {f[0, 0]}")


if __name__ == "__main__":
    main()
