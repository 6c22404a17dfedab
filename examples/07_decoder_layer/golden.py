"""Inputs and reference of the decoder layer: one decoding step for 16 sequences."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The task graph is that of a layer of a 14B model: 40 query heads, 8 key heads, 34 tiles of the
# FFN. The orchestration has the same numbers.
BATCH, HEADS, KEY_HEADS, DIM, BLOCK_SIZE = 16, 40, 8, 16, 32
HIDDEN = HEADS * DIM
FFN = 34 * 64
EPSILON = 1e-6

ALL_CASES = {
    # 4 to 6 blocks per sequence, as with 3500 to 5500 tokens in blocks of 1024.
    "contexts_112_to_172": {"contexts": [112 + 4 * i for i in range(BATCH)]},
    "contexts_1_to_31": {"contexts": [1 + 2 * i for i in range(BATCH)]},
}
DEFAULT_CASE = "contexts_112_to_172"

# All values are float32 and within about 5; the longest sum has 2176 terms.
RTOL = 1e-5
ATOL = 5e-5

__outputs__ = ["out", "key_cache", "value_cache"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    generator = np.random.default_rng(7)
    contexts = np.array(params["contexts"], np.int32)
    blocks = -(-contexts // BLOCK_SIZE)
    block_count = int(blocks.sum())
    block_table = np.full((BATCH, blocks.max()), -1, np.int32)
    block_table[np.arange(blocks.max()) < blocks[:, None]] = generator.permutation(block_count)

    def weight(rows: int, columns: int) -> NDArray[Any]:
        scaled: NDArray[Any] = generator.uniform(-1.0, 1.0, (rows, columns)) * np.sqrt(3.0 / rows)
        return scaled

    frequencies = 10000.0 ** (-np.arange(DIM // 2) / (DIM // 2))
    angles = np.arange(contexts.max())[:, None] * frequencies
    cache_shape = (block_count, BLOCK_SIZE, KEY_HEADS, DIM)
    tensors = {
        "x": generator.uniform(-1.0, 1.0, (BATCH, HIDDEN)),
        "attention_norm": generator.uniform(0.5, 1.5, HIDDEN),
        "w_query": weight(HIDDEN, HIDDEN),
        "w_key": weight(HIDDEN, KEY_HEADS * DIM),
        "w_value": weight(HIDDEN, KEY_HEADS * DIM),
        "cosines": np.cos(angles),
        "sines": np.sin(angles),
        "key_cache": generator.uniform(-1.0, 1.0, cache_shape),
        "value_cache": generator.uniform(-1.0, 1.0, cache_shape),
        "block_table": block_table,
        "contexts": contexts,
        "w_out": weight(HIDDEN, HIDDEN),
        "ffn_norm": generator.uniform(0.5, 1.5, HIDDEN),
        "w_gate": weight(HIDDEN, FFN),
        "w_up": weight(HIDDEN, FFN),
        "w_down": weight(FFN, HIDDEN),
        "out": np.zeros((BATCH, HIDDEN)),
    }
    sizes = {
        "block_count": block_count,
        "table_width": block_table.shape[1],
        "positions": angles.shape[0],
    }
    return [
        *((name, _float32(value)) for name, value in tensors.items()),
        *((name, ctypes.c_int64(value)) for name, value in sizes.items()),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected outputs in place, in float64."""
    wide = {name: value.astype(np.float64) for name, value in tensors.items() if value.ndim}
    normed = _rms_norm(wide["x"], wide["attention_norm"])
    query, key, value = (normed @ wide[f"w_{name}"] for name in ("query", "key", "value"))
    attention = np.empty((BATCH, HEADS, DIM))
    for sequence, context in enumerate(params["contexts"]):
        last = context - 1
        turn = wide["cosines"][last], wide["sines"][last]
        blocks = tensors["block_table"][sequence, : -(-context // BLOCK_SIZE)]
        new_key = _rotate(key[sequence].reshape(KEY_HEADS, DIM), *turn)
        new_value = value[sequence].reshape(KEY_HEADS, DIM)
        for cache, new in (("key_cache", new_key), ("value_cache", new_value)):
            slot = blocks[last // BLOCK_SIZE], last % BLOCK_SIZE
            wide[cache][slot] = new
            tensors[cache][slot] = new
        keys = np.concatenate(wide["key_cache"][blocks])[:context]
        values = np.concatenate(wide["value_cache"][blocks])[:context]
        heads = _rotate(query[sequence].reshape(HEADS, DIM), *turn)
        attention[sequence] = _attend(heads, keys, values)
    residual = wide["x"] + attention.reshape(BATCH, HIDDEN) @ wide["w_out"]
    normed = _rms_norm(residual, wide["ffn_norm"])
    gate = normed @ wide["w_gate"]
    hidden = gate / (1.0 + np.exp(-gate)) * (normed @ wide["w_up"])
    tensors["out"][:] = residual + hidden @ wide["w_down"]


def _float32(value: NDArray[Any]) -> NDArray[Any]:
    return value if value.dtype == np.int32 else value.astype(np.float32)


def _rms_norm(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    scaled: NDArray[Any] = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * weight
    return scaled


def _rotate(heads: NDArray[Any], cosines: NDArray[Any], sines: NDArray[Any]) -> NDArray[Any]:
    low, high = np.split(heads, 2, axis=1)
    return np.concatenate([low * cosines - high * sines, high * cosines + low * sines], axis=1)


def _attend(heads: NDArray[Any], keys: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Attend with each query head to its key head; keys are [token][key head][dim]."""
    group = HEADS // KEY_HEADS
    scores = np.einsum("ghd,tgd->ght", heads.reshape(KEY_HEADS, group, DIM), keys) * DIM**-0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    means: NDArray[Any] = np.einsum("ght,tgd->ghd", weights, values)
    return means.reshape(HEADS, DIM)
