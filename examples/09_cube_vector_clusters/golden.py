"""Inputs and reference of the cluster example: y = max(x w + bias, 0), one tile per cluster."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 32
CLUSTERS = 24
DEPTH = 128

# Tiles of rows ("blocks"), tiles of columns, and whether each call submits all blocks at once.
ALL_CASES = {
    "pairs_8x3": {"blocks": 8, "columns": 3, "as_block_tasks": False},
    "blocks_8x3": {"blocks": 8, "columns": 3, "as_block_tasks": True},
    "pairs_30x3": {"blocks": 30, "columns": 3, "as_block_tasks": False},
    "blocks_24x4": {"blocks": 24, "columns": 4, "as_block_tasks": True},
}
DEFAULT_CASE = "pairs_30x3"

# A float32 sum of 128 products of values within -1 and 1.
RTOL = 1e-5
ATOL = 1e-5

__outputs__ = ["y"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    generator = np.random.default_rng(9)
    rows, columns = params["blocks"] * TILE, params["columns"] * TILE

    def uniform(*shape: int) -> NDArray[Any]:
        return generator.uniform(-1.0, 1.0, shape).astype(np.float32)

    return [
        ("x", uniform(rows, DEPTH)),
        ("w", uniform(DEPTH, columns)),
        ("bias", uniform(columns)),
        ("local", np.full((CLUSTERS, TILE, TILE), np.nan, np.float32)),
        ("y", np.zeros((rows, columns), np.float32)),
        ("blocks", ctypes.c_int64(params["blocks"])),
        ("columns", ctypes.c_int64(params["columns"])),
        ("depth", ctypes.c_int64(DEPTH)),
        ("as_block_tasks", ctypes.c_int64(params["as_block_tasks"])),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place, in float64."""
    x, w, bias = (tensors[name].astype(np.float64) for name in ("x", "w", "bias"))
    tensors["y"][:] = np.maximum(x @ w + bias, 0.0)
