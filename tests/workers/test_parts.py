"""Arguments that are parts of arrays and of temporaries: columns, transposed, with steps."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from pto_core import In, InOut, Out, Retries, attempt, task
from pto_core.errors import RaceError, UsageError

LINES = 10
"""The number of tasks in a random program."""


@task
def fill(out: Out, value: int) -> None:
    out[...] = value


@task
def mix(x: In, y: InOut) -> None:
    y[...] = y * 3 + np.resize(np.array(x), y.shape)


@task
def copy(x: In, out: Out) -> None:
    out[...] = np.resize(np.array(x), out.shape)


@task
def layout(x: In) -> Any:
    return x.shape, x.strides, x.flags.writeable, x.tolist()


def random_view(chosen: random.Random, array: Any) -> Any:
    """Return a view with the elements of a random part, in a random order of dimensions."""
    keys: list[Any] = []
    for extent in array.shape:
        first = chosen.randrange(extent)
        last = chosen.randrange(first, extent)
        step = chosen.choice([1, 1, 1, 2, 3])
        key = slice(first, last + 1, step)
        keys.append(chosen.choice([key, key, key, slice(None), first, slice(None, None, -1)]))
    view = array[(*keys, ...)]
    return view.transpose(chosen.sample(range(view.ndim), view.ndim))


def submit_random(s: Any, seed: int, arrays: list[Any]) -> None:
    chosen = random.Random(seed)
    for number in range(LINES):
        x, y = (random_view(chosen, chosen.choice(arrays)) for _ in range(2))
        function, args = chosen.choice([(fill, (y, number)), (mix, (x, y)), (copy, (x, y))])
        if function is copy and np.shares_memory(x, y):
            continue
        if s is None:
            function(*args)
        else:
            s.submit(function, *args)


def test_random_tasks_have_the_sequential_result(make) -> None:
    worker = make(num_sub_workers=2)
    arrays = [worker.shared_array(shape, "int64") for shape in ((7, 6), (3, 4, 5))]
    expected = [np.zeros_like(array) for array in arrays]
    first = int.from_bytes(os.urandom(3), "big")
    for seed in range(first, first + 12):
        with worker.session() as s:
            submit_random(s, seed, arrays)
        submit_random(None, seed, expected)
        for one, other in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(one, other, f"seed {seed}")


def edges(worker: Any, first: Any, second: Any) -> int:
    def program(s: Any) -> None:
        s.submit(fill, first, 1)
        s.submit(fill, second, 2)

    return len(list(worker.graph(program).edges))


def test_only_tasks_that_share_elements_are_ordered(make) -> None:
    worker = make(num_sub_workers=1)
    x = worker.array(np.arange(64.0).reshape(8, 8))
    assert edges(worker, x[:, :4], x[:, 4:]) == 0
    assert edges(worker, x[:, :4].T, x.T[4:]) == 0
    assert edges(worker, x[2:4, :4], x[3:, 4:]) == 0
    assert edges(worker, x[::-1, 3], x[:, 4:]) == 0
    assert edges(worker, x[:, :5], x[2, 4:]) == 1
    assert edges(worker, x[:, :4], x[2, 4:]) == 0  # a contiguous part of a row
    assert edges(worker, x[::2], x[1::2]) == 1  # steps: conservative
    assert edges(worker, x.view("int32")[:, :4], x[:, 2:]) == 0
    y = x.reshape(4, 16)
    assert edges(worker, y[:, :4], y[:, 8:]) == 1  # another shape: conservative
    assert edges(worker, y[:2, :4], y[2:, :4]) == 0


def test_children_receive_views_with_the_same_strides(make) -> None:
    worker = make(num_sub_workers=1)
    x = worker.array(np.arange(24, dtype="int16").reshape(2, 3, 4))
    parts = [x[:, :, 1:3], x.T, x[::-1, :, ::-2], np.broadcast_to(x[0, 0], (2, 4)), x.diagonal()]
    with worker.session() as s:
        handles = [s.submit(layout, part) for part in parts]
        for part, handle in zip(parts, handles, strict=True):
            assert handle.result() == (part.shape, part.strides, False, part.tolist())
    private = np.asfortranarray(np.arange(6).reshape(2, 3))
    with worker.session() as s:
        assert s.submit(layout, private).result()[3] == private.tolist()
        with pytest.raises(UsageError, match=r"argument out of .*read-only"):
            s.submit(fill, np.broadcast_to(x[0, 0], (2, 4)), 1)
        with pytest.raises(UsageError, match="array of this process only"):
            s.submit(fill, private, 1)


def test_a_handle_of_a_task_that_writes_a_part_is_the_part(make) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array((4, 4), "int64")
    with worker.session() as s:
        written = s.submit(fill, x[:, 1:3], 7)
        assert s.submit(layout, written).result()[3] == [[7, 7]] * 4
        values = s.submit(total, [written, 1])
        assert values.result() == 57
        assert written.result().base is x


@task
def total(values: Any) -> Any:
    return int(values[0].sum()) + values[1]


def test_parts_of_temporaries(make) -> None:
    def program(s: Any, out: Any) -> None:
        whole = s.empty((4, 6), "int64")
        s.submit(fill, whole, 1)
        s.submit(fill, whole[:, 1:3], 2)
        s.submit(fill, whole[:, 1:5][3, ::-1], 3)
        s.submit(fill, whole[2], 4)
        s.submit(copy, whole, out)

    worker = make(num_sub_workers=2)
    out, other = worker.shared_array((4, 6), "int64"), worker.shared_array((4, 6), "int64")
    expected = [[1, 2, 2, 1, 1, 1]] * 2 + [[4] * 6, [1, 3, 3, 3, 3, 1]]
    worker.run(program, (out,))
    assert out.tolist() == expected
    captured = worker.capture(program, (out,))
    worker.replay(captured, (other,))
    assert other.tolist() == expected
    with worker.session() as s:
        whole = s.empty((4, 6), "int64")
        assert (whole[1, 2].shape, whole[1:3].shape) == ((), (2, 6))
        assert s.submit(fill, whole[:, :2], 5).result().tolist() == [[5, 5]] * 4
        with pytest.raises(UsageError, match="slices and integers"):
            whole[[1, 2]]


def test_a_replay_moves_the_parts(make) -> None:
    def program(s: Any, x: Any) -> None:
        s.submit(fill, x[:, :2], 1)
        s.submit(fill, x[:, 2:], 2)
        s.submit(mix, x[1:, 0], x.T[3, 1:], retries=1)

    worker = make(num_sub_workers=2)
    x, y = worker.shared_array((3, 4), "int64"), worker.shared_array((3, 4), "int64")
    captured = worker.capture(program, (x,))
    worker.replay(captured, (y,))
    assert not x.any()
    assert y.tolist() == [[1, 1, 2, 2], [1, 1, 2, 7], [1, 1, 2, 7]]


@task
def fail_once(x: InOut) -> None:
    x += 10
    if attempt() == 1:
        raise ValueError


def test_a_repeated_task_restores_only_its_part(make) -> None:
    worker = make(num_sub_workers=1)
    x, expected = worker.array(np.arange(24).reshape(2, 3, 4)), np.arange(24).reshape(2, 3, 4)
    expected[:, 1:, 2] += 10
    expected[1, 0] = 5
    with worker.session() as s:
        repeated = s.submit(fail_once, x[:, 1:, 2], retries=Retries(1, backoff_s=0.1))
        s.submit(fill, x[1, 0], 5).result()
        repeated.result()
        with pytest.raises(UsageError, match=r"argument x of .*steps"):
            s.submit(fail_once, x[..., ::2], retries=1)
    np.testing.assert_array_equal(x, expected)


def test_a_checked_session_reports_only_parts_that_share_elements(make) -> None:
    def program(s: Any, first: int) -> None:
        s.submit(copy, x[:, :4], y)
        s.submit(fill, x[:, first:], 1)

    worker = make(num_sub_workers=2)
    x, y = worker.shared_array((4, 8)), worker.shared_array((4, 4))
    with worker.session(hazards="check") as s:
        program(s, 4)
    s = worker.session(hazards="check")
    s.__enter__()
    program(s, 3)
    with pytest.raises(RaceError):
        s.__exit__(None, None, None)
