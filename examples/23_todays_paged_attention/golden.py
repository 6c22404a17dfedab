"""Inputs and reference of paged attention: one decoding step over a paged float32 cache."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADS, DIM, BLOCK = 16, 16, 16

# "contexts" holds the number of cached tokens of each sequence of the batch.
ALL_CASES = {
    "context_33": {"contexts": [33]},
    "ragged_4": {"contexts": [33, 64, 128, 15]},
}
DEFAULT_CASE = "ragged_4"

# A score is a sum of 16 products, and the output a weighted mean of values within -1 and 1.
RTOL = 1e-5
ATOL = 1e-6

__outputs__ = ["out"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    generator = np.random.default_rng(5)
    contexts = np.array(params["contexts"], np.int32)
    blocks = -(-contexts // BLOCK)
    table = np.full((contexts.size, blocks.max()), -1, np.int32)
    table[np.arange(blocks.max()) < blocks[:, None]] = generator.permutation(int(blocks.sum()))
    query = generator.uniform(-1, 1, (contexts.size, HEADS, DIM)).astype(np.float32)
    caches = generator.uniform(-1, 1, (2, int(blocks.sum()), BLOCK, DIM)).astype(np.float32)
    for row, context in zip(table, contexts, strict=True):
        if context % BLOCK:  # a wrong read changes the output
            caches[:, row[context // BLOCK], context % BLOCK :] = np.nan
    return [
        ("query", query),
        ("keys", caches[0].copy()),
        ("values", caches[1].copy()),
        ("table", table),
        ("contexts", contexts),
        ("out", np.zeros_like(query)),
        ("scale", ctypes.c_float(DIM**-0.5)),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place: softmax over the whole context at once, in float64."""
    for sequence, context in enumerate(params["contexts"]):
        blocks = tensors["table"][sequence, : -(-context // BLOCK)]
        keys, values = (
            np.concatenate(tensors[name][blocks])[:context].astype(np.float64)
            for name in ("keys", "values")
        )
        scores = tensors["query"][sequence].astype(np.float64) @ keys.T * DIM**-0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        tensors["out"][sequence] = weights @ values / weights.sum(axis=1, keepdims=True)
