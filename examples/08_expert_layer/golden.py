"""Inputs and reference of the expert layer: each token is processed by its best experts."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Every token selects the first `popular` experts, so the other experts may get no token.
ALL_CASES = {
    "experts_16_top_2": {"tokens": 32, "experts": 16, "top": 2, "popular": 0},
    "experts_64_top_6": {"tokens": 8, "experts": 64, "top": 6, "popular": 0},
    "two_experts_get_all": {"tokens": 32, "experts": 16, "top": 2, "popular": 2},
}
DEFAULT_CASE = "experts_64_top_6"

HIDDEN = 64
WIDTH = 96

# All values are float32. A logit is at most about 16, with a relative error of 1e-6; a share has
# the same error.
RTOL = 1e-5
ATOL = 1e-5

__outputs__ = ["out"]


def generate_inputs(params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments in the order in which the orchestration reads them."""
    generator = np.random.default_rng(8)
    tokens, experts = params["tokens"], params["experts"]

    def weight(*shape: int) -> NDArray[Any]:
        scaled: NDArray[Any] = generator.uniform(-1.0, 1.0, shape) * np.sqrt(3.0 / shape[-2])
        return scaled

    x = generator.uniform(0.0, 2.0, (tokens, HIDDEN))
    w_router = weight(HIDDEN, experts)
    w_router[:, : params["popular"]] += 0.25
    tensors = {
        "x": x,
        "w_router": w_router,
        "w_gate": weight(experts, HIDDEN, WIDTH),
        "w_up": weight(experts, HIDDEN, WIDTH),
        "w_down": weight(experts, WIDTH, HIDDEN),
        "out": np.zeros_like(x),
    }
    sizes = {
        "tokens": tokens,
        "hidden": HIDDEN,
        "experts": experts,
        "top": params["top"],
        "width": WIDTH,
    }
    return [
        *((name, value.astype(np.float32)) for name, value in tensors.items()),
        *((name, ctypes.c_int64(value)) for name, value in sizes.items()),
    ]


def compute_golden(tensors: dict[str, NDArray[Any]], params: dict[str, Any]) -> None:
    """Fill the expected output in place, token by token, in float64."""
    wide = {name: tensors[name].astype(np.float64) for name in ("x", "w_gate", "w_up", "w_down")}
    logits = wide["x"] @ tensors["w_router"].astype(np.float64)
    for token, x in enumerate(wide["x"]):
        chosen = _picked(logits[token], params["top"])
        shares = np.exp(logits[token, chosen])
        answer = x.copy()
        for expert, share in zip(chosen, shares / shares.sum(), strict=True):
            gate = x @ wide["w_gate"][expert]
            hidden = gate / (1.0 + np.exp(-gate)) * (x @ wide["w_up"][expert])
            answer += share * (hidden @ wide["w_down"][expert])
        tensors["out"][token] = answer


def _picked(logits: NDArray[Any], top: int) -> NDArray[Any]:
    order = np.argsort(-logits)
    margin = logits[order[top - 1]] - logits[order[top]]
    assert margin > 1e-4, "float32 may pick other experts than float64; use another seed"
    return order[:top]
