"""Kernels and orchestration of f = (a + b + 1)(a + b + 2), tile by tile, without explicit edges."""

import numpy as np

from pto_core import Graph, In, Out, Scalar, kernel

TILE_ROWS = 32


@kernel(core="aiv")
def add(x: In, y: In, out: Out) -> None:
    """Add two arrays; the annotations declare the arrays that a task reads and writes."""
    np.add(x, y, out=out)


@kernel(core="aiv")
def add_scalar(x: In, scalar: Scalar, out: Out) -> None:
    """Add one number to every element."""
    np.add(x, np.float32(scalar), out=out)


@kernel(core="aiv")
def multiply(x: In, y: In, out: Out) -> None:
    """Multiply two arrays."""
    np.multiply(x, y, out=out)


def graph(rt: Graph, a: In, b: In, f: Out) -> None:
    """Submit a diamond of tasks for each tile of rows; a slice of an array is a view of rows."""
    for first in range(0, a.shape[0], TILE_ROWS):
        rows = slice(first, first + TILE_ROWS)
        with rt.scope():
            c, d, e = (rt.tensor((TILE_ROWS, a.shape[1]), a.dtype) for _ in range(3))
            rt.submit(add, a[rows], b[rows], c)
            rt.submit(add_scalar, c, 1.0, d)
            rt.submit(add_scalar, c, 2.0, e)
            rt.submit(multiply, d, e, f[rows])
