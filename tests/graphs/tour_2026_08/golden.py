"""Inputs and reference of the tour; a case for each defect that it can have."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL_CASES = {
    name: {"defect": number}
    for number, name in enumerate(
        (
            "right",
            "overwrites_early",
            "edge_is_missing",
            "wrong_factor",
            "does_not_fit",
            "host_writes",
            "host_reads",
            "crashes",
            "crashes_beside_others",
            "host_sets_inputs",
        )
    )
}
DEFAULT_CASE = "right"
__outputs__ = ["out"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments of the orchestration."""
    values = np.arange(128, dtype=np.float32).reshape(8, 16)
    out = np.zeros_like(values)
    return [("values", values), ("out", out), ("defect", ctypes.c_int64(params["defect"]))]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place."""
    rows = np.arange(8, dtype=np.float32)[:, None]
    tensors["out"][:] = ((tensors["values"] + 1 + rows) * 2 + 1) * 2
