"""Inputs and reference of batch paged attention: one decoding step of many sequences at once."""

import ctypes
import os
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_SMALL = {"heads": 16, "head_dim": 16, "block_size": 16}
_BATCH = {"heads": 1, "head_dim": 256, "block_size": 16}

# "contexts" holds the number of cached tokens of each sequence of the batch. The names Case1 and
# CaseBatch256 are published.
ALL_CASES = {
    "Case1": {**_SMALL, "contexts": [16]},
    "context_33": {**_SMALL, "contexts": [33]},
    "context_31": {**_SMALL, "contexts": [31]},
    "context_128": {**_SMALL, "contexts": [128]},
    "ragged_2": {**_SMALL, "contexts": [33, 17]},
    "ragged_4": {**_SMALL, "contexts": [33, 64, 128, 15]},
    "two_head_tiles": {**_SMALL, "heads": 24, "contexts": [40, 7]},
    "last_chunk_of_4": {**_SMALL, "heads": 2, "contexts": [*range(1, 21)]},
    "CaseBatch256": {**_BATCH, "contexts": [16] * 256},
    "batch_256_context_33_to_48": {**_BATCH, "contexts": [33 + i % 16 for i in range(256)]},
}
# PA_CASE names the case that runs without --case.
DEFAULT_CASE = os.environ.get("PA_CASE") or "batch_256_context_33_to_48"
# PA_SEQ_LEN, such as 33,64,15, replaces the contexts of every case; the batch is their number.
if os.environ.get("PA_SEQ_LEN"):
    _LENGTHS = [int(length) for length in os.environ["PA_SEQ_LEN"].split(",")]
    if min(_LENGTHS) < 1:
        raise ValueError(f"PA_SEQ_LEN is {_LENGTHS}; expected lengths of at least 1")
    ALL_CASES = {name: {**case, "contexts": _LENGTHS} for name, case in ALL_CASES.items()}

# Kernels and reference receive inputs that are rounded to bfloat16; all other values are float32. A
# score is a sum of at most 256 products, with an error of about 1e-6 after scaling. A weight has
# the same relative error, and the output is a weighted mean of values within -1 and 1.
RTOL = 1e-5
ATOL = 1e-6

__outputs__ = ["out"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    generator = np.random.default_rng(6)
    contexts = np.array(params["contexts"], np.int32)
    heads, head_dim, block_size = params["heads"], params["head_dim"], params["block_size"]
    blocks = -(-contexts // block_size)
    block_count = int(blocks.sum())

    block_table = np.full((contexts.size, blocks.max()), -1, np.int32)
    in_use = np.arange(blocks.max()) < blocks[:, None]
    block_table[in_use] = generator.permutation(block_count)

    query = _uniform(generator, (contexts.size, heads, head_dim))
    cache_shape = (block_count, block_size, 1, head_dim)
    key_cache = _uniform(generator, cache_shape)
    value_cache = _uniform(generator, cache_shape)
    _poison_unused_slots(key_cache, value_cache, block_table, contexts)
    out = np.zeros(query.shape, np.float32)
    sizes = {
        "batch": contexts.size,
        "heads": heads,
        "head_dim": head_dim,
        "block_size": block_size,
        "block_count": block_count,
        "table_width": block_table.shape[1],
    }
    return [
        ("query", query),
        ("key_cache", key_cache),
        ("value_cache", value_cache),
        ("block_table", block_table),
        ("contexts", contexts),
        ("out", out),
        *((name, ctypes.c_int64(value)) for name, value in sizes.items()),
        ("scale", ctypes.c_float(head_dim**-0.5)),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place: softmax over the whole context at once, in float64."""
    query = tensors["query"].astype(np.float64)
    for sequence, context in enumerate(params["contexts"]):
        blocks = tensors["block_table"][sequence, : -(-context // params["block_size"])]
        keys, values = (
            np.concatenate(tensors[name][blocks])[:context, 0].astype(np.float64)
            for name in ("key_cache", "value_cache")
        )
        scores = query[sequence] @ keys.T * params["head_dim"] ** -0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        tensors["out"][sequence] = weights @ values


def _uniform(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    return generator.uniform(-1.0, 1.0, shape).astype(ml_dtypes.bfloat16)


def _poison_unused_slots(
    key_cache: NDArray[Any],
    value_cache: NDArray[Any],
    block_table: NDArray[Any],
    contexts: NDArray[Any],
) -> None:
    """Fill the slots after each context with NaN, so that a wrong read changes the output."""
    block_size = key_cache.shape[1]
    for table, context in zip(block_table, contexts, strict=True):
        used = context % block_size
        if used:
            last_block = table[context // block_size]
            key_cache[last_block, used:] = np.nan
            value_cache[last_block, used:] = np.nan
