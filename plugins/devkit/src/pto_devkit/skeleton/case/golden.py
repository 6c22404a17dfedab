"""The inputs of the case, and the reference for c = scale * a + b, element by element."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

ALL_CASES = {
    "small": {"count": 1024, "scale": 2.0, "seed": 1},
    "large": {"count": 1 << 20, "scale": 0.5, "seed": 2},
}
DEFAULT_CASE = "small"

# Tolerances: an element may differ by at most RTOL * |expected| + ATOL.
RTOL = 1e-6
ATOL = 1e-6

__outputs__ = ["c"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration receives them."""
    generator = np.random.default_rng(params["seed"])
    a, b = generator.uniform(-1.0, 1.0, (2, params["count"])).astype(np.float32)
    c = np.zeros(params["count"], np.float32)
    scale = ctypes.c_float(params["scale"])
    return [("a", a), ("b", b), ("c", c), ("scale", scale), ("count", ctypes.c_int64(c.size))]


def compute_golden(tensors: dict[str, Any], params: dict[str, Any]) -> None:
    """Fill the output tensors with the expected values."""
    tensors["c"][:] = np.float32(params["scale"]) * tensors["a"] + tensors["b"]
