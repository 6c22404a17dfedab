"""Test the Worker of level 3: tasks, scopes, and memory of chips."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core.errors import TaskFailedError, UnsupportedError, UsageError
from simpler.task_interface import (
    CallConfig,
    ChipCallable,
    DataType,
    TaskArgs,
    Tensor,
    TensorArgType,
)
from simpler.worker import Worker

SIZE = 64
CHIPS = 3
INPUT, OUTPUT = TensorArgType.INPUT, TensorArgType.OUTPUT


@pytest.fixture(scope="module")
def chips() -> dict[str, ChipCallable]:
    """Return the programs that run on chips, by name."""
    folder = Path(__file__).parent / "workers"
    sys.path.insert(0, str(folder))
    try:
        import vector_add
    finally:
        sys.path.remove(str(folder))
    return {"vector": vector_add.vector()}


def double(args: Any) -> None:
    args.tensor(1)[:] = 2 * args.tensor(0)


def check_factor(args: Any) -> None:
    assert args.scalar(0) == 5


class Opened:
    """A started Worker with the handles of its callables."""

    def __init__(self, chips: dict[str, ChipCallable]) -> None:
        self.worker: Any = Worker(
            level=3,
            platform="a2a3sim",
            runtime="tensormap_and_ringbuffer",
            device_ids=range(CHIPS),
            num_sub_workers=2,
        )
        self.handles = {name: self.worker.register(chip) for name, chip in chips.items()}
        self.double, self.check = map(self.worker.register, (double, check_factor))
        self.worker.init()


@pytest.fixture(scope="module")
def opened(chips: dict[str, ChipCallable]) -> Iterator[Opened]:
    found = Opened(chips)
    yield found
    found.worker.close()


def args_of(*tensors: tuple[Tensor, TensorArgType], scalars: tuple[int, ...] = ()) -> TaskArgs:
    args = TaskArgs()
    for tensor, tag in tensors:
        args.add_tensor(tensor, tag)
    for scalar in scalars:
        args.add_scalar(scalar)
    return args


def shared(opened: Opened, value: float) -> tuple[Tensor, np.ndarray]:
    tensor = opened.worker.alloc_shared_tensor((SIZE,), DataType.FLOAT32)
    array = np.asarray(tensor.buffer).view(np.float32)
    array[:] = value
    return tensor, array


TWO = 0x4000_0000  # the bits of the float32 2.0


def test_chips_and_sub_children(opened: Opened) -> None:
    (a, _), (b, _), (out, result) = (shared(opened, value) for value in (2, 3, 0))

    def graph(orch: Any, args: TaskArgs, cfg: CallConfig) -> None:
        with orch.scope():
            middle = orch.alloc((SIZE,), DataType.FLOAT32)
            inputs = [(one, INPUT) for one in args.tensors]
            chip = args_of(*inputs, (middle, OUTPUT), scalars=(TWO,))
            orch.submit_next_level(opened.handles["vector"], chip, cfg, worker=1)
            orch.submit_sub(opened.double, args_of((middle, INPUT), (out, OUTPUT)))
        orch.scope_begin()
        orch.submit_sub_group(opened.check, [args_of(scalars=(5,)) for _ in range(2)])
        orch.scope_end()
        with pytest.raises(UsageError, match="scope_end without scope_begin"):
            orch.scope_end()

    opened.worker.run(graph, args_of((a, INPUT), (b, INPUT)), CallConfig(aicpu_thread_num=2))
    assert (result == 84).all()


def test_memory_of_a_chip(opened: Opened) -> None:
    worker = opened.worker
    content = np.full(SIZE, 2, np.float32)
    on_chip = [worker.alloc_child_tensor(chip, (SIZE,), DataType.FLOAT32) for chip in (0, 2)]
    worker.copy_to(on_chip[1].buffer, content)
    outs = [shared(opened, 0) for _ in on_chip]

    def graph(orch: Any, _args: object, cfg: CallConfig) -> None:
        worker.copy_to(on_chip[0].buffer, content)
        group = [
            args_of((one, INPUT), (one, INPUT), (out, OUTPUT), scalars=(TWO,))
            for one, (out, _) in zip(on_chip, outs, strict=True)
        ]
        vector = opened.handles["vector"]
        orch.submit_next_level_group(vector, group, cfg, workers=[0, 2])

    run = worker.submit(graph)
    run.wait(60)
    assert run.done()
    assert all((array == 30).all() for _, array in outs)
    out, array = outs[0]
    first = on_chip[0]
    args = args_of((first, INPUT), (first, INPUT), (out, OUTPUT), scalars=(0,))
    worker.run(opened.handles["vector"], args)
    assert (array == 20).all()
    worker.copy_from(content, on_chip[1].buffer)
    assert (content == 2).all()
    for tensor in on_chip:
        worker.free(tensor.buffer)


def test_mistakes(opened: Opened) -> None:
    worker = opened.worker

    def refuses(error: type[Exception], match: str, call: Callable[[Any], Any]) -> None:
        with pytest.raises(error, match=match):
            worker.run(lambda orch, args, cfg: call(orch) and None)

    strided = worker.create_buffer(64).tensor((4,), DataType.FLOAT32, (2,))
    refuses(
        UnsupportedError,
        "contiguous",
        lambda o: o.submit_sub(opened.double, args_of((strided, INPUT), (strided, OUTPUT))),
    )
    config = CallConfig()
    config.runtime_env.ring_heap = 65536
    with pytest.raises(UnsupportedError, match=r"sets pto2\.heap"):
        worker.run(lambda orch, args, cfg: None, None, config)
    one = args_of(scalars=(4,))
    refuses(TaskFailedError, "check_factor", lambda o: o.submit_sub(opened.check, one) and None)
