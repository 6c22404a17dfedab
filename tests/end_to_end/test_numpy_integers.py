"""The public interface accepts NumPy numbers wherever it accepts ``int`` and ``float``.

Each entry calls one function with NumPy integers in the place of all its integers, and compares the
result with that of the same call with plain ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import (
    CallConfig,
    ChipCallable,
    ContinuousTensor,
    Hosts,
    InOut,
    TaskArgs,
    Worker,
    kernel,
    open_device,
    task,
)
from pto_core.config import load_core
from pto_core.errors import UsageError

Number = Callable[[Any], Any]
KINDS = [np.int64, np.int32, np.uint8]


@kernel(core="aiv")
def plus(x: InOut, *numbers):
    x += 1 + sum(numbers)


def graph(n: Number, runtime: str) -> np.ndarray[Any, Any]:
    """Use the integers of ``rt`` for a runtime."""

    def explicit(rt, x):
        first = rt.add_task(n(0), (x,))
        second = rt.add_task(plus, (x[n(0) : n(2)],))
        rt.add_successor(np.int64(first), np.int64(second))
        rt.add_successor(np.int64(second), rt.add_task(plus, (rt.empty(n(3), "float32"),)))

    def derived(rt, x):
        first = rt.submit(n(0), x)
        cluster = rt.allocate_cluster()
        rt.submit(plus, x, cluster=np.int64(cluster), after=np.int64(first))
        rt.submit(plus, x, after=[np.int64(first)])
        rt.submit_block(plus, x, block_dim=n(2), clusters=[np.int64(cluster)] * 2)
        rt.add_dep(np.int64(first), rt.submit(plus, x))
        rt.free_cluster(np.int64(cluster))
        assert rt.tensor((n(2), n(3)), "float32").shape == (2, 3)

    build = explicit if runtime == "host_build_graph" else derived
    data = np.zeros(4, "float32")
    with open_device("a2a3sim", runtime=runtime, device=n(0), block_dim=n(4)) as device:
        chip = ChipCallable(build, {n(0): plus}, signature=("inout",))
        config = CallConfig(block_dim=n(4), aicpu_thread_num=n(3))
        device.run(chip, data, config=config, timeout_s=np.float32(60), trace=n(1))
        array = device.empty((n(2), n(2)), "float32")
        assert array.view(n(4), n(1), "float32").shape == (1,)
        assert array.reshape((n(1), n(4))).shape == array.reshape(n(4)).reshape((n(1), n(4))).shape
        assert array[n(1) :, n(0)].shape == (1,)
        assert array.transpose((n(1), n(0))).shape == (2, 2)
    return data


def device_memory(n: Number) -> Any:
    worker = Worker(level=n(3), device_ids=[n(0), n(1)], num_sub_workers=n(1))
    with worker:
        address = worker.malloc(n(64), n(1))
        data, back = np.arange(8.0), np.zeros(8)
        worker.copy_to(np.uint64(address), data, n(1))
        worker.copy_from(back, np.uint64(address), worker=n(1))
        worker.free(np.uint64(address), n(1))
    return back.tolist()


def submits(n: Number) -> Any:
    seen: list[Any] = []

    @task(retries=n(1))
    def increase(x: InOut) -> None:
        x += 1

    def untyped(args):
        args.tensor(0)[:] += 1

    worker = Worker(
        level=n(3),
        num_sub_workers=n(2),
        task_timeout_s=np.float64(60),
        heap_ring_size=np.int64(2**20),
    )
    handle = worker.register(untyped)
    worker.register(increase)
    with worker:
        data = worker.shared_array((n(2), n(3)))
        data[:] = 0
        with worker.session() as session:
            submitted = session.submit(
                increase, data, worker=n(1), retries=n(1), timeout_s=np.float32(60)
            )
            assert session.empty(n(4)).shape == (4,)
            submitted.result(timeout=np.float32(60))

        def graph(orch, args, config):
            made = TaskArgs()
            made.add_tensor(data, np.int64(pto_core.TensorArgType.INOUT))
            assert made.tag(n(0)) == pto_core.TensorArgType.INOUT
            orch.submit_sub(handle, made, worker=n(1), retries=n(0), timeout_s=np.float64(60))
            orch.submit_sub_group(handle, [made], workers=[n(1)])
            seen.append(orch.alloc((n(2),), "float32").shape)
            with pytest.raises(UsageError, match="worker is"):
                orch.submit_sub(handle, made, worker=n(2))

        worker.run(graph)
        with worker.trace(n(1)):
            worker.run(graph)
    return data.tolist(), seen


def plain_objects(n: Number) -> Any:
    tensor = ContinuousTensor.from_pointer(np.uint64(4096), (n(2), n(3)), "float32")
    config = CallConfig(
        n(4), n(2), enable_l2_swimlane=n(1), enable_dump_tensor=n(0), enable_pmu=n(0),
        enable_dep_gen=n(1), enable_scope_stats=n(1), output_prefix="x",
    )  # fmt: skip
    return (
        tensor.shape,
        tensor.address,
        config.pack(trace=n(2)),
        pto_core.Direction.IN("float32", n(4)).shape,
        pto_core.Direction.IN("float32", (n(4), n(2))).shape,
        Hosts.on("local", num=n(2), resources={"CPU": np.float32(2)}),
        load_core({"hosts": n(4), "task_timeout_s": np.float32(2)})["hosts"],
        list(ChipCallable(graph, {n(3): plus}).children),
    )


CALLS: dict[str, Callable[[Number], Any]] = {
    "host_build_graph": lambda n: graph(n, "host_build_graph").tolist(),
    "tensormap_and_ringbuffer": lambda n: graph(n, "tensormap_and_ringbuffer").tolist(),
    "device_memory": device_memory,
    "submits": submits,
    "plain_objects": plain_objects,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_numpy_integers_are_integers(call) -> None:
    expected = call(int)
    for kind in KINDS:
        assert call(kind) == expected, kind


@pytest.mark.parametrize("wrong", [np.float64(1), np.bool_(True), True, 1.0, "1", None, 1j])
def test_other_objects_are_no_integers(wrong) -> None:
    for refused in (
        lambda: Worker(level=wrong),
        lambda: Worker(level=3, device_ids=[wrong]),
        lambda: Worker(level=3, num_sub_workers=wrong),
        lambda: task(retries=wrong)(lambda: None),
        lambda: ChipCallable(graph, {wrong: plus}),
        lambda: CallConfig(block_dim="1" if wrong is True else wrong),
        lambda: Hosts.on("local", num="1" if wrong is None else wrong),
    ):
        with pytest.raises(UsageError):
            refused()
