"""Inputs and reference of the tiled GEMM: C = A B, one 64 x 64 tile per task."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 64

# Tiles of C by rows, tiles of C by columns, and length of each accumulation chain.
ALL_CASES = {
    "grid_4x4x4": {"grid": (4, 4, 4)},
    "long_chains_1x2x16": {"grid": (1, 2, 16)},
}
DEFAULT_CASE = "grid_4x4x4"

# The error of a float32 sum of K products of values in [-1, 1] is at most K * 2**-24 * sum|a b|.
# Rounding errors of both signs cancel, so the expected error is about sqrt(K) / K of the bound:
# 1e-4 at K = 1024.
RTOL = 1e-4
ATOL = 1e-4

__outputs__ = ["c"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    rows, columns, depth = params["grid"]
    generator = np.random.default_rng(3)
    a = generator.uniform(-1.0, 1.0, (rows * TILE, depth * TILE)).astype(np.float32)
    b = generator.uniform(-1.0, 1.0, (depth * TILE, columns * TILE)).astype(np.float32)
    c = np.zeros((rows * TILE, columns * TILE), np.float32)
    return [
        ("a", a),
        ("b", b),
        ("c", c),
        ("tile_rows", ctypes.c_int64(rows)),
        ("tile_columns", ctypes.c_int64(columns)),
        ("tile_depth", ctypes.c_int64(depth)),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place."""
    tensors["c"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)
