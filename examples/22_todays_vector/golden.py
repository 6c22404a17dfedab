"""Inputs and reference of the vector example: f = (a + b + 1)(a + b + 2)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHAPE = (128, 128)

ALL_CASES = {
    "constant": {"a": 2.0, "b": 3.0},  # every element of f is 42
    "random": {"seed": 1},
}
DEFAULT_CASE = "constant"

# The kernels compute the same float32 operations as the reference, in the same order.
RTOL = 1e-6
ATOL = 1e-6

__outputs__ = ["f"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    if "seed" in params:
        generator = np.random.default_rng(params["seed"])
        a, b = generator.uniform(-1.0, 1.0, (2, *SHAPE)).astype(np.float32)
    else:
        a = np.full(SHAPE, params["a"], np.float32)
        b = np.full(SHAPE, params["b"], np.float32)
    return [("a", a), ("b", b), ("f", np.zeros(SHAPE, np.float32))]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place."""
    total = tensors["a"] + tensors["b"]
    tensors["f"][:] = (total + np.float32(1.0)) * (total + np.float32(2.0))
