"""Many tasks in one call, the configuration of a task, and the driver's own thread."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pto_core import CallConfig, ContinuousTensor, TaskArgs, TensorArgType, Worker
from pto_core.errors import DeadlockError, UsageError


def scale(args):
    args.tensor(0)[:] += args.scalar(0) * args.scalar(1)


def touch(args):
    args.tensor(0)[:] += 1


def tensors(*arrays):
    args = TaskArgs()
    for array in arrays:
        args.add_tensor(ContinuousTensor.from_array(array), TensorArgType.INOUT)
    return args


def test_each_task_gets_its_part_and_its_row(make):
    w = make(num_sub_workers=2)
    handle = w.register(scale)
    data = w.shared_array((1000, 3), "int64")
    factors = np.arange(1000)

    def graph(orch, args, cfg):
        parts = tensors(data)
        parts.add_scalar(2)
        numbers = orch.submit_sub_many(handle, parts, factors)
        assert len(numbers) == 1000
        # This second call overlaps the parts of the first, so its tasks run after them.
        orch.submit_sub_many(handle, parts, factors)

    w.run(graph)
    assert (data == 4 * factors[:, None]).all()


def test_arrays_with_different_numbers_of_parts_are_refused(make):
    w = make(num_sub_workers=1)
    handle = w.register(scale)
    few, many = w.shared_array((4, 2), "int64"), w.shared_array((5, 2), "int64")

    def graph(orch, args, cfg):
        with pytest.raises(UsageError, match="5 parts along its first dimension"):
            orch.submit_sub_many(handle, tensors(few, many))
        with pytest.raises(UsageError, match="scalars has 5 parts"):
            orch.submit_sub_many(handle, tensors(few), np.arange(5))
        with pytest.raises(UsageError, match="8-byte numbers"):
            orch.submit_sub_many(handle, tensors(few), np.arange(4, dtype=np.int32))
        with pytest.raises(UsageError, match="pass at least one"):
            orch.submit_sub_many(handle, TaskArgs())

    w.run(graph)
    assert not few.any()
    assert not many.any()


def block_dim(orch, args, config):
    args.tensor(0)[0] = config.block_dim


def test_a_configuration_that_changed_is_sent_again(make, engine):
    pod = make(level=4)
    pod.add_worker(Worker(3, num_sub_workers=1, engine=engine, heap_ring_size=1 << 24))
    handle = pod.register(block_dim)
    rows = pod.shared_array((2, 1), "int64")
    config = CallConfig(block_dim=5)

    def graph(orch, args, _):
        orch.submit_next_level(handle, tensors(rows[0]), config)
        config.block_dim = 6
        orch.submit_next_level(handle, tensors(rows[1]), config)

    pod.run(graph)
    assert rows.tolist() == [[5], [6]]
    assert config == CallConfig(block_dim=6)


def test_tasks_run_while_the_graph_function_does_other_work(make):
    w = make(num_sub_workers=2)
    handle = w.register(touch)
    data = w.shared_array((2,), "int64")

    def graph(orch, args, cfg):
        kept = orch.submit_sub(handle, tensors(data[:1]))
        orch.submit_sub(handle, tensors(data[1:]))
        end = time.monotonic() + 20
        while not data.all():
            assert time.monotonic() < end, "no thread drives the run"
            time.sleep(0.001)
        assert kept.wait(20)

    w.run(graph)


def test_a_program_that_would_wait_forever_gets_a_deadlock_error(make):
    """The proof of the deadlock is immediate: see pto_core/native_tests/deadlock_test.cpp."""
    w = make(num_sub_workers=1)

    def graph(orch, args, cfg):
        for _ in range(100):
            orch.alloc((1 << 20,), "int8")

    with pytest.raises(DeadlockError, match="Set heap_ring_size to at least"):
        w.run(graph)
    w.run(lambda orch, args, cfg: None)
