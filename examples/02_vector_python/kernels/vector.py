"""Kernels and orchestration of f = (a + b + 1)(a + b + 2), as plain Python functions."""

import numpy as np

from pto_core import Graph, In, Out, Scalar, kernel


@kernel(core="aiv")
def add(x: In, y: In, out: Out) -> None:
    """Add two arrays; a kernel sees its arguments as NumPy views of device memory."""
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
    """Build the diamond; a published task may start while the rest is being built."""
    c, d, e = (rt.empty(a.shape, a.dtype) for _ in range(3))

    first = rt.add_task(add, (a, b, c))
    rt.publish(first)

    left = rt.add_task(add_scalar, (c, 1.0, d))
    right = rt.add_task(add_scalar, (c, 2.0, e))
    last = rt.add_task(multiply, (d, e, f))
    for before, after in ((first, left), (first, right), (left, last), (right, last)):
        rt.add_successor(before, after)
    for task in (left, right, last):
        rt.publish(task)
