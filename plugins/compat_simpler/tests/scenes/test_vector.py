"""A scene test of August 2026, with NumPy arrays in the place of torch tensors."""

import ctypes
from typing import Any

import numpy as np

from simpler.task_interface import ArgDirection as D
from simpler_setup import Scalar, SceneTestCase, TaskArgsBuilder, TensorArg, scene_test


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestVector(SceneTestCase):
    RTOL = 1e-5
    ATOL = 1e-5
    RUNTIME_ENV = {"PTO2_RING_DEP_POOL": "1024"}
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/vector.cpp",
            "function_name": "build_vector",
            "signature": [D.IN, D.IN, D.OUT],
        },
        "incores": [
            {
                "func_id": 0,
                "source": "kernels/aiv/binary.cpp",
                "core_type": "aiv",
                "signature": [D.IN, D.IN, D.OUT],
                "extra_include_dirs": ["../sum"],
            },
            {"func_id": 1, "source": "kernels/aiv/add_scalar.cpp", "core_type": "aiv"},
            {
                "func_id": 2,
                "source": "kernels/aiv/binary.cpp",
                "core_type": "aic",
                "extra_include_dirs": ["../product"],
            },
        ],
    }
    CASES = [
        {
            "name": "default",
            "platforms": ["a2a3sim", "a2a3"],
            "config": {"aicpu_thread_num": 4, "block_dim": 3},
            "params": {"size": 1000},
        },
        {
            "name": "small_rings",
            "platforms": ["a2a3sim"],
            "manual": True,
            "config": {"runtime_env": {"ring_task_window": 16, "ring_heap": [65536] * 4}},
            "params": {"size": 64},
        },
        {"name": "wrong", "platforms": ["a2a3sim"], "manual": ["a2a3sim"], "params": {"size": 0}},
        {"name": "card", "platforms": ["a2a3"], "params": {"size": 64}},
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        size = params["size"] or 8
        return TaskArgsBuilder(
            TensorArg("a", np.full(size, 2, np.float32)),
            TensorArg("b", np.full(size, 3, np.float32)),
            TensorArg("f", np.zeros(size, np.float32)),
            Scalar("second", ctypes.c_float(2)),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        total = args.a + args.b
        args.f[:] = (total + 1) * (total + 2)
        if params["size"] == 0:
            args.f[3] = 0


@scene_test(level=2, runtime="host_build_graph")
class TestVectorOnHost(TestVector):
    def compare_outputs(
        self, actual: TaskArgsBuilder, expected: TaskArgsBuilder, params: dict[str, Any]
    ) -> None:
        np.testing.assert_allclose(actual.f, expected.f)


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
