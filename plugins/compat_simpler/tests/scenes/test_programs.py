"""Scene tests as authors of programs write them, one class for each kind of published program."""

import ctypes
from typing import Any

import numpy as np

from simpler.task_interface import ArgDirection as D
from simpler_setup import Scalar, SceneTestCase, TaskArgsBuilder, TensorArg, scene_test

DATA_TYPES = {
    "float32": 0,
    "float16": 1,
    "int32": 2,
    "int16": 3,
    "int8": 4,
    "uint8": 5,
    "int64": 7,
    "uint64": 8,
    "uint16": 9,
    "uint32": 10,
    "bool": 11,
}


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestLanes(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/lanes.cpp",
            "function_name": "build_lanes",
            "signature": [D.INOUT],
        },
        "incores": [
            {"func_id": 0, "source": "kernels/mix/lanes.cpp", "core_type": "aic"},
            {"func_id": 1, "source": "kernels/mix/lanes.cpp", "core_type": "aiv"},
            {"func_id": 2, "source": "kernels/mix/lanes.cpp", "core_type": "aiv"},
        ],
    }
    CASES = [
        {
            "name": f"blocks{blocks}",
            "platforms": ["a2a3sim", "a2a3"],
            "config": {"aicpu_thread_num": 4, "block_dim": 24},
            "params": {"blocks": blocks},
        }
        for blocks in (4, 24, 100)
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        blocks = params["blocks"]
        return TaskArgsBuilder(
            TensorArg("out", np.zeros(4 * blocks * 48, np.float32)),
            Scalar("blocks", ctypes.c_int64(blocks)),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        blocks = params["blocks"]
        all_, one_each, vectors, single = args.out.reshape(4, blocks, 3, 16)[..., 0]
        numbers = 10 * np.arange(blocks)[:, None] + np.arange(3)
        all_[:] = numbers + 1000 * blocks
        one_each[0, :2] = (1007, 1008)
        vectors[:2, 1:] = numbers[:2, 1:] - 5 + 2000
        single[:, :2] = numbers[:, :2] + 3 + 1000 * blocks


@scene_test(level=2, runtime="host_build_graph")
class TestOrder(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/order.cpp",
            "function_name": "aicpu_orchestration_entry",
            "signature": [D.INOUT, D.INOUT],
        },
        "incores": [{"func_id": 0, "source": "kernels/aiv/double_and_add.cpp", "core_type": "aiv"}],
    }
    CASES = [
        {"name": "barrier", "platforms": ["a2a3sim"], "params": {"mode": 0}},
        {"name": "predicates", "platforms": ["a2a3sim"], "params": {"mode": 1}},
        {
            "name": "reuse",
            "platforms": ["a2a3sim"],
            "config": {"runtime_env": {"ring_heap": 65536}},
            "params": {"mode": 2},
        },
        {
            "name": "allocations",
            "platforms": ["a2a3sim"],
            "config": {"block_dim": 5},
            "params": {"mode": 3},
        },
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        return TaskArgsBuilder(
            TensorArg("x", np.zeros((4, 16), np.float32)),
            TensorArg("counts", np.zeros(4, np.int32)),
            Scalar("mode", ctypes.c_int32(params["mode"])),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        if params["mode"] == 0:
            args.x[:] = 100 + 2 * 15 * 2 ** np.arange(4)[:, None]
        if params["mode"] == 1:
            args.x[:] = ((1 * 2 + 2) * 2 + 32) * 2 + 64  # NONE, EQ, GE, LE
        if params["mode"] == 3:
            args.counts[:] = (5, 10, 201, 5)

    def compare_outputs(self, actual: Any, expected: Any, params: dict[str, Any]) -> None:
        for name in ("x", "counts"):
            np.testing.assert_array_equal(actual[name], expected[name])


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestDataTypes(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/copy.cpp",
            "function_name": "aicpu_orchestration_entry",
            "signature": [D.IN, D.OUT],
        },
        "incores": [{"func_id": 0, "source": "kernels/aiv/copy.cpp", "core_type": "aiv"}],
    }
    CASES = [
        {"name": name, "platforms": ["a2a3sim"], "params": {"dtype": name, "code": code}}
        for name, code in DATA_TYPES.items()
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        values = (np.arange(60).reshape(3, 4, 5) % 7).astype(params["dtype"])
        return TaskArgsBuilder(
            TensorArg("from_", values),
            TensorArg("to", np.zeros_like(values)),
            Scalar("code", params["code"]),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        args.to[:] = args.from_


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestPagedAttention(SceneTestCase):
    RTOL = 1e-4
    ATOL = 1e-4
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/attention.cpp",
            "function_name": "aicpu_orchestration_entry",
            "signature": [D.IN, D.IN, D.IN, D.IN, D.IN, D.OUT],
        },
        "incores": [
            {
                "func_id": 0,
                "name": "matmul",
                "source": "kernels/aic/matmul.cpp",
                "core_type": "aic",
                "signature": [D.IN, D.IN, D.OUT],
            },
            {
                "func_id": 1,
                "name": "softmax",
                "source": "kernels/aiv/softmax.cpp",
                "core_type": "aiv",
                "signature": [D.IN, D.OUT, D.OUT, D.OUT],
            },
            {
                "func_id": 2,
                "name": "update",
                "source": "kernels/aiv/update.cpp",
                "core_type": "aiv",
                "signature": [D.IN, D.IN, D.IN, D.INOUT, D.INOUT, D.INOUT, D.INOUT],
            },
        ],
    }
    CASES = [
        {
            "name": "CaseSmall1",
            "platforms": ["a2a3sim", "a2a3"],
            "config": {"aicpu_thread_num": 4, "block_dim": 24},
            "params": {"batch": 3, "heads": 4, "dim": 8, "block": 4, "pages": 9},
        },
        {
            "name": "small_rings",
            "platforms": ["a2a3sim"],
            "config": {
                "runtime_env": {
                    "ring_task_window": 64,
                    "ring_heap": 65536,
                    "ring_dep_pool": 64,
                }
            },
            "params": {"batch": 5, "heads": 4, "dim": 8, "block": 4, "pages": 40},
        },
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        random = np.random.default_rng(7)
        batch, pages = params["batch"], params["pages"]
        columns = pages // batch
        table = random.permutation(pages)[: columns * batch].reshape(batch, columns)
        lengths = 1 + (5 * np.arange(batch) + 6) % (columns * params["block"])
        cache = (pages, params["block"], params["dim"])
        queries = (batch * params["heads"], params["dim"])
        return TaskArgsBuilder(
            TensorArg("query", random.standard_normal(queries, np.float32)),
            TensorArg("key_cache", random.standard_normal(cache, np.float32)),
            TensorArg("value_cache", random.standard_normal(cache, np.float32)),
            TensorArg("block_table", table.astype(np.int32)),
            TensorArg("context_lens", lengths.astype(np.int32)),
            TensorArg("out", np.zeros(queries, np.float32)),
            Scalar("scale", ctypes.c_float(0.35)),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        heads, dim = params["heads"], params["dim"]
        for request, length in enumerate(args.context_lens):
            rows = slice(request * heads, (request + 1) * heads)
            pages = args.block_table[request]
            keys = args.key_cache[pages].reshape(-1, dim)[:length]
            values = args.value_cache[pages].reshape(-1, dim)[:length]
            weights = np.exp(args.query[rows] @ keys.T * np.float32(0.35))
            args.out[rows] = weights / weights.sum(axis=1, keepdims=True) @ values


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestPagedAttentionManualScope(TestPagedAttention):
    CALLABLE = {
        **TestPagedAttention.CALLABLE,
        "orchestration": {
            "source": "kernels/orchestration/attention_manual.cpp",
            "function_name": "build_paged_attention",
            "signature": [D.IN, D.IN, D.IN, D.IN, D.IN, D.OUT],
        },
    }


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
