"""Published programs for level 3, with the names that they use."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import (
    CallConfig,
    ChipCallable,
    ContinuousTensor,
    DataType,
    Out,
    Scalar,
    TensorArgType,
    Worker,
    kernel,
)
from pto_core.kernels import OrchestrationSource


@kernel(core="aiv")
def fill(out: Out, value: Scalar) -> None:
    out[:] = value


def fill_on_chip(rt: Any, out: Out, value: Scalar) -> None:
    rt.submit(fill, out, value)


def build_fill_on_chip(rt: Any, out: Out, value: Scalar) -> None:
    rt.publish(rt.add_task(fill, (out, value)))


ORCHESTRATIONS = {
    "host_build_graph": build_fill_on_chip,
    "aicpu_build_graph": build_fill_on_chip,
    "tensormap_and_ringbuffer": fill_on_chip,
}


def add(args: Any) -> None:
    x, y, out = (args.tensor(i) for i in range(3))
    np.add(x, y, out=out)


def mark(args: Any) -> None:
    args.tensor(0)[:] = args.scalar(0)


@pytest.mark.parametrize("runtime", ORCHESTRATIONS)
def test_two_chips_and_two_sub_children(make, runtime) -> None:
    w3 = make(level=3, platform="a2a3sim", runtime=runtime, device_ids=[0, 1], num_sub_workers=2)
    chip = w3.register(ChipCallable(ORCHESTRATIONS[runtime]))
    check = w3.register(add)
    marked = w3.register(mark)
    total = w3.shared_array((128, 128))
    marks = w3.shared_array((2, 4))
    w3.init()

    def graph(orch, args, cfg) -> None:
        x = orch.alloc((128, 128), DataType.FLOAT32)
        y = orch.alloc((128, 128), DataType.FLOAT32)
        orch.submit_next_level(chip, given((x, TensorArgType.OUTPUT), scalars=(7,)), cfg, worker=0)
        with orch.scope():
            z = orch.alloc((128, 128), DataType.FLOAT32)
            orch.submit_next_level_group(
                chip,
                [
                    given((y, TensorArgType.OUTPUT), scalars=(5,)),
                    given((z, TensorArgType.OUTPUT), scalars=(6,)),
                ],
                cfg,
                workers=[0, 1],
            )
            b = given(
                (x, TensorArgType.INPUT), (y, TensorArgType.INPUT), (total, TensorArgType.OUTPUT)
            )
            orch.submit_sub(check, b)
        orch.submit_sub_group(
            marked,
            [given((marks[i], TensorArgType.OUTPUT), scalars=(i + 1,)) for i in range(2)],
        )

    w3.run(graph, args=None, config=CallConfig())
    assert (total == 12).all()
    np.testing.assert_array_equal(marks[:, 0], [1, 2])
    w3.close()


ORCHESTRATION = """
#include "pto_orchestration_api.h"

extern "C" void build(PTO2Runtime* rt, uint64_t* args, int) {
  uint64_t shape[1] = {args[1]};
  Tensor out = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1);
  PTOParam params[] = {make_output_param(out), make_scalar_param(args[2])};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
}
"""


def test_an_orchestration_in_cpp_on_a_chip_before_and_after_the_start(
    make, tmp_path, shared_cache
) -> None:
    source = tmp_path / "build.cpp"
    source.write_text(ORCHESTRATION)
    w3 = make(
        platform="a2a3sim",
        runtime="tensormap_and_ringbuffer",
        device_ids=[0],
        cache_dir=str(shared_cache),
    )
    signature = ("out", "scalar", "scalar")
    program = ChipCallable(OrchestrationSource(source, "build"), [(0, fill)], signature)
    out = w3.shared_array(16)

    def run(value: int) -> None:
        chip = w3.register(program)
        args = given((out, TensorArgType.OUTPUT), scalars=(out.size, value))
        w3.run(lambda orch, _, cfg: orch.submit_next_level(chip, args, cfg))
        assert (out == value).all()
        w3.unregister(chip)

    run(5)
    run(6)  # not copied, so the framework copies it to the chip that runs the task


@pytest.mark.parametrize("mode", ["PROCESS", "process"])
def test_a_sub_function_without_arguments_and_a_task_slot(make, tmp_path, mode) -> None:
    w3 = make(num_sub_workers=1, child_mode=mode)
    output = tmp_path / "pid"
    handle = w3.register(lambda: output.write_text(str(os.getpid())))
    slots = []
    w3.run(lambda orch, args, cfg: slots.append(orch.submit_sub(handle).task_slot))
    assert int(output.read_text()) != os.getpid()
    assert slots == [0]


def test_a_graph_gets_a_view_of_its_arguments_and_its_configuration(make) -> None:
    w3 = make(num_sub_workers=1)
    seen: list[Any] = []

    def graph(orch, args, cfg) -> None:
        seen.append((args.tensor_count, args.scalar_count, list(args.scalars), cfg.block_dim))

    w3.run(graph)
    x = np.zeros(4)
    args = given((x, TensorArgType.INPUT), scalars=(1, 2))
    w3.run(graph, args=args, config=CallConfig(block_dim=3))
    assert seen == [(0, 0, [], 0), (1, 2, [1, 2], 3)]


def test_an_output_without_an_address_is_allocated(make) -> None:
    w3 = make(num_sub_workers=1)
    fill_it, add_it = w3.register(mark), w3.register(add)
    total = w3.shared_array(8)

    def graph(orch, args, cfg) -> None:
        x = ContinuousTensor.from_pointer(0, (8,), DataType.FLOAT32)
        made = given((x, TensorArgType.OUTPUT), scalars=(21,))
        orch.submit_sub(fill_it, made)
        y = made.tensors[0]
        assert y.address != 0
        orch.submit_sub(
            add_it,
            given(
                (y, TensorArgType.INPUT), (y, TensorArgType.INPUT), (total, TensorArgType.OUTPUT)
            ),
        )

    w3.run(graph)
    assert (total == 42).all()


def test_a_key_orders_tasks_and_need_not_be_memory(make) -> None:
    w3 = make(num_sub_workers=2)
    order = w3.shared_array(64, "int64")
    position = w3.shared_array(1, "int64")

    def note(args: Any) -> None:
        order[int(position[0])] = args.scalar(0)
        position[0] += 1

    handle = w3.register(note)

    def graph(orch, args, cfg) -> None:
        key = ContinuousTensor.from_pointer(0xDEADBEEF, (0,), DataType.UINT8)
        for number in range(64):
            orch.submit_sub(handle, given((key, TensorArgType.INOUT), scalars=(number,)))

    w3.run(graph)
    np.testing.assert_array_equal(order, np.arange(64))


def test_a_context_manager_closes_and_twice_is_fine() -> None:
    with Worker(level=3, num_sub_workers=1) as w3:
        w3.init()
        assert "running" in repr(w3)
    assert "closed" in repr(w3)
    w3.close()
