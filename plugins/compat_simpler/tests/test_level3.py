"""Test the Worker of level 3: tasks, scopes, memory of chips, and windows between chips."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import chip as core
from pto_core.errors import ChildDiedError, TaskFailedError, UnsupportedError, UsageError
from simpler.task_interface import (
    ArgDirection,
    CallConfig,
    ChipCallable,
    CommBufferSpec,
    CoreCallable,
    DataType,
    TaskArgs,
    Tensor,
    TensorArgType,
)
from simpler.worker import Worker

SIZE = 64
CHIPS = 3
IN, OUT, INOUT = ArgDirection.IN, ArgDirection.OUT, ArgDirection.INOUT
INPUT, OUTPUT = TensorArgType.INPUT, TensorArgType.OUTPUT


@pytest.fixture(scope="module")
def chips() -> dict[str, ChipCallable]:
    """Return the programs that run on chips, by name."""
    folder = Path(__file__).parent / "workers"
    sys.path.insert(0, str(folder))
    try:
        import compiled
        import vector_add
    finally:
        sys.path.remove(str(folder))
    sources = folder / "kernels"
    library = compiled.orchestration(sources / "collective.cpp", "build_collective")
    signature = [IN, INOUT, INOUT, OUT]
    found = {"vector": vector_add.vector()}
    for name in ("all_reduce", "broadcast"):
        kernel = CoreCallable.build(signature, compiled.incore(sources / f"{name}.cpp"))
        found[name] = ChipCallable.build(signature, "build_collective", library, [(0, kernel)])
    return found


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


BUFFERS = [
    CommBufferSpec("data", DataType.FLOAT32, count=SIZE),
    CommBufferSpec("flags", "int32", nbytes=64),
]


def run_collective(
    opened: Opened, name: str, allocate: Callable[[Any, str], Any]
) -> tuple[list[float], list[np.ndarray]]:
    """Run a collective on the chips of a domain; return the inputs and the outputs of all chips."""
    values = [10.0**chip for chip in range(CHIPS)]
    inputs = [shared(opened, value)[0] for value in values]
    outs = [shared(opened, 0) for _ in values]
    contexts = set()
    window = np.ones(4096, np.uint8)

    def graph(orch: Any, _args: object, cfg: CallConfig) -> None:
        domain = allocate(orch, name)
        for chip in domain:
            opened.worker.copy_from(window, domain[chip].buffers["data"].buffer)
            assert not window.any()
        for rank, chip in enumerate(domain):
            member = domain[chip]
            assert (member.domain_rank, member.domain_size) == (rank, len(domain))
            assert member.buffer_ptrs["flags"] > member.buffer_ptrs["data"]
            contexts.add(member.device_ctx)
            args = args_of(
                (inputs[chip], INPUT),
                (member.buffers["data"], TensorArgType.INOUT),
                (member.buffers["flags"], TensorArgType.INOUT),
                (outs[chip][0], OUTPUT),
                scalars=(member.device_ctx, 1),
            )
            orch.submit_next_level(opened.handles[name], args, cfg, worker=chip)
        assert len(contexts) == len(domain)

    opened.worker.run(graph)
    return values, [array for _, array in outs]


def test_all_reduce(opened: Opened) -> None:
    for _ in range(2):  # the second run gets the windows of the first one, with zeros
        values, outs = run_collective(
            opened,
            "all_reduce",
            lambda orch, name: orch.allocate_global_domain(name, 4096, BUFFERS),
        )
        assert all((array == sum(values)).all() for array in outs), outs


def test_broadcast_among_some_chips(opened: Opened) -> None:
    values, outs = run_collective(
        opened, "broadcast", lambda orch, name: orch.allocate_domain(name, [2, 0], 5000, BUFFERS)
    )
    assert [array[0] for array in outs] == [values[2], 0, values[2]]


def kill_itself(_rt: Any, _data: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_after_the_death_of_a_chip_gets_new_windows(opened: Opened) -> None:
    def allocate(orch: Any, name: str) -> Any:
        return orch.allocate_global_domain(name, 4096, BUFFERS)

    killing = opened.worker.register(core.ChipCallable(kill_itself))

    def graph(orch: Any, _args: object, cfg: CallConfig) -> None:
        window = allocate(orch, "lost")[1].buffers["data"]
        orch.submit_next_level(killing, args_of((window, TensorArgType.INOUT)), cfg, worker=1)

    with pytest.raises(ChildDiedError, match="chip1"):
        opened.worker.run(graph)
    values, outs = run_collective(opened, "all_reduce", allocate)
    assert all((array == sum(values)).all() for array in outs), outs


def test_a_run_that_continues_after_the_death_of_a_chip_drops_its_old_windows(
    opened: Opened,
) -> None:
    killing = opened.worker.register(core.ChipCallable(kill_itself))

    def two_domains(orch: Any, name: str) -> list[Any]:
        return [orch.allocate_global_domain(one, 8192, BUFFERS) for one in (name, f"{name} 2")]

    def graph(orch: Any, _args: object, cfg: CallConfig) -> None:
        window = orch.allocate_global_domain("lost", 8192, BUFFERS)[1].buffers["data"]
        args = args_of((window, TensorArgType.INOUT))
        lost = orch.submit_next_level(killing, args, cfg, worker=1)
        assert isinstance(lost.exception(), ChildDiedError)
        orch.allocate_global_domain("new", 8192, BUFFERS)

    opened.worker.run(graph)
    values, outs = run_collective(opened, "all_reduce", lambda *given: two_domains(*given)[1])
    assert all((array == sum(values)).all() for array in outs), outs


def test_mistakes(opened: Opened) -> None:
    worker = opened.worker

    def refuses(error: type[Exception], match: str, call: Callable[[Any], Any]) -> None:
        with pytest.raises(error, match=match):
            worker.run(lambda orch, args, cfg: call(orch) and None)

    refuses(UsageError, "different chips of 0 to 2", lambda o: o.allocate_domain("d", [3], 4096))
    refuses(UsageError, "different chips", lambda o: o.allocate_domain("d", [0, 0], 4096))
    refuses(
        UsageError,
        "the buffers have 2048 bytes",
        lambda o: o.allocate_domain("d", [0], 1024, BUFFERS),
    )
    refuses(
        UsageError,
        "worker 1 is not in this domain, which has 0",
        lambda o: o.allocate_domain("d", [0], 4096)[1],
    )
    refuses(
        UsageError,
        "used already",
        lambda o: [o.allocate_domain("d", [0], 4096) for _ in range(2)],
    )
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
