"""A scene test of level 3: a chip for each half, and a SUB function that adds the halves."""

import ctypes
from typing import Any

import numpy as np

from simpler.task_interface import ArgDirection as D, TaskArgs, TensorArgType as Tag
from simpler_setup import (
    Scalar,
    SceneTestCase,
    SceneTestLevel,
    TaskArgsBuilder,
    TensorArg,
    scene_test,
)


def add(args: Any) -> None:
    args.tensor(2)[:] = args.tensor(0) + args.tensor(1)


def arguments(inputs: list[Any], output: Any) -> TaskArgs:
    args = TaskArgs()
    for tensor in inputs:
        args.add_tensor(tensor, Tag.INPUT)
    args.add_tensor(output, Tag.OUTPUT)
    return args


def two_chips(orch: Any, callables: Any, args: Any, config: Any) -> None:
    halves = [orch.alloc((args.out.shape[0],)) for _ in range(2)]
    for chip, half in enumerate(halves):
        task = arguments([args.a, args.b], half)
        task.add_scalar(args.second)
        orch.submit_next_level(callables.vector, task, config, worker=chip)
    orch.submit_sub(callables.add, arguments(halves, args.out))


def one_chip(orch: Any, args: Any, config: Any) -> None:
    task = arguments([args.a, args.b], args.out)
    task.add_scalar(args.second)
    orch.submit_next_level(orch.callables.vector, task, config, worker=0)


INCORES = [
    {
        "func_id": 0,
        "source": "kernels/aiv/binary.cpp",
        "core_type": "aiv",
        "extra_include_dirs": ["../sum"],
    },
    {"func_id": 1, "source": "kernels/aiv/add_scalar.cpp", "core_type": "aiv"},
    {
        "func_id": 2,
        "source": "kernels/aiv/binary.cpp",
        "core_type": "aic",
        "extra_include_dirs": ["../product"],
    },
]
CALLABLES = [
    {
        "name": "vector",
        "orchestration": {
            "source": "kernels/orchestration/vector.cpp",
            "function_name": "build_vector",
            "signature": [D.IN, D.IN, D.OUT],
        },
        "incores": INCORES,
    },
    {"name": "add", "callable": add},
]


@scene_test(level=SceneTestLevel.HOST, runtime="tensormap_and_ringbuffer")
class TestTwoChips(SceneTestCase):
    CALLABLE = {"orchestration": two_chips, "callables": CALLABLES}
    CASES = [
        {
            "name": "default",
            "platforms": ["a2a3sim"],
            "config": {
                "device_count": 2,
                "num_sub_workers": 1,
                "aicpu_thread_num": 2,
                "runtime_env": {"ring_task_window": 64},
            },
            "params": {"factor": 2},
        },
    ]

    def generate_args(self, params: dict[str, Any]) -> TaskArgsBuilder:
        return TaskArgsBuilder(
            TensorArg("a", np.full(16, 2, np.float32)),
            TensorArg("b", np.full(16, 3, np.float32)),
            TensorArg("out", np.zeros(16, np.float32)),
            Scalar("second", ctypes.c_float(2)),
        )

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, Any]) -> None:
        total = args.a + args.b
        args.out[:] = params["factor"] * (total + 1) * (total + 2)


@scene_test(level=SceneTestLevel.HOST, runtime="host_build_graph")
class TestOneChip(TestTwoChips):
    CALLABLE = {"orchestration": one_chip, "callables": CALLABLES[:1]}
    CASES = [
        {"name": "default", "platforms": ["a2a3sim"], "params": {"factor": 1}},
        {
            "name": "wrong",
            "platforms": ["a2a3sim"],
            "manual": "a2a3sim",
            "params": {"factor": 2},
        },
    ]


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
