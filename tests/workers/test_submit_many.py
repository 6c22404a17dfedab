"""Many tasks in one call, and the configuration of a task."""

from __future__ import annotations

import numpy as np
import pytest

from pto_core import CallConfig, ContinuousTensor, TaskArgs, TensorArgType, Worker
from pto_core.errors import UsageError


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
        with pytest.raises(UsageError, match="pass at least one"):
            orch.submit_sub_many(handle, TaskArgs())

    w.run(graph)
    assert not few.any()
    assert not many.any()


def block_dim(orch, args, config):
    args.tensor(0)[0] = config.block_dim


def test_a_configuration_that_changed_is_sent_again(make):
    pod = make(level=4)
    pod.add_worker(Worker(3, num_sub_workers=1, heap_ring_size=1 << 24))
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


def keep_bits(args):
    args.tensor(0)[:] = args.scalars


ROWS = {
    "list": [[3, 0.5], [np.int8(-2), True], (np.float32(0.5), 2**64 - 1)],
    "int32": np.array([[1, -2], [3, 4], [-5, 6]], "int32"),
    "uint64": np.array([[1, 2**64 - 1], [3, 4], [5, 6]], "uint64"),
    "float32": np.array([[0.5, -0.0], [1e-45, np.inf], [3, 4]], "float32"),
    "float64": np.array([[0.5, -0.0], [5e-324, np.inf], [3, 4]]),
    "bool": np.array([[True, False], [False, True], [True, True]]),
    "memoryview": memoryview(np.array([[1, -2], [3, 4], [-5, 6]], "int16")),
}


def test_each_number_of_a_row_is_added_as_add_scalar_adds_it(make):
    w = make(num_sub_workers=1)
    handle = w.register(keep_bits)
    found = w.shared_array((3, 2), "uint64")
    for name, rows in ROWS.items():
        wanted = TaskArgs()
        for row in np.asarray(rows) if isinstance(rows, memoryview) else rows:
            for number in row:
                wanted.add_scalar(number)
        w.run(lambda orch, _, cfg, rows=rows: orch.submit_sub_many(handle, tensors(found), rows))
        assert tuple(found.ravel().tolist()) == wanted.scalars, name


WRONG_ROWS = [
    (np.arange(4, dtype=">i8"), "scalars has data type .* byte order"),
    (np.array([1, 2, 3, 4], object), "scalars has data type dtype"),
    (np.zeros(4, "complex64"), "scalars is .*real numbers"),
    (np.zeros(4, "M8[s]"), "scalars"),
    (np.zeros((4, 1, 1)), r"scalars is [\s\S]*one row of numbers for each task"),
    (np.zeros(8)[::2], "scalars is not C-contiguous"),
    ([[1], [2, 3], [4], [5]], "scalars is .*one row of numbers"),
    ([[1, 2], [3], [4, 5], [6, 7]], "scalars is .*one row of numbers"),
    ([1, "2", 3, 4], "scalars is .*real numbers"),
    ([1, None, 3, 4], "scalars is .*real numbers"),
    ([1, 2**64, 3, 4], "does not fit into 64 bits"),
    (7, "scalars is 7"),
]


def test_scalars_that_are_no_rows_of_numbers_are_refused(make):
    w = make(num_sub_workers=1)
    handle, data = w.register(touch), w.shared_array((4, 2), "int64")

    def graph(orch, args, cfg):
        for rows, message in WRONG_ROWS:
            with pytest.raises(UsageError, match=message):
                orch.submit_sub_many(handle, tensors(data), rows)

    w.run(graph)
    assert not data.any()
