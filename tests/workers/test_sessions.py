"""Typed tasks, their handles, registration at any time, and memory of a chip."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import (
    ChipCallable,
    ContinuousTensor,
    In,
    InOut,
    Out,
    OutExisting,
    Progress,
    Scalar,
    TensorArgType,
    Worker,
    kernel,
    task,
)
from pto_core.errors import ControlError, TaskFailedError, UsageError


@task
def scale(x: In, factor: Scalar, out: Out) -> None:
    np.multiply(x, factor, out=out)


@task
def total(x: In, out: InOut) -> None:
    out += x.sum()


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def spoil(x: In) -> None:
    x[:] = 1


@task
def assigns(x: In, out: Out) -> None:
    out = x * 2  # noqa: F841


@kernel(core="aiv")
def double(x: In, out: Out) -> None:
    np.multiply(x, 2, out=out)


def on_chip(rt: Any, x: In, out: Out) -> None:
    rt.submit(double, x, out)


def test_a_task_that_loses_its_result_fails(make) -> None:
    worker = make(num_sub_workers=1)
    x, out = worker.shared_array(8), worker.shared_array(8)
    message = "assigns assigned a new value"
    with pytest.raises(TaskFailedError, match=message) as caught, worker.session() as s:
        s.submit(assigns, x, out)
    assert isinstance(caught.value.__cause__, UsageError)


def test_intermediates_results_and_a_scope(make) -> None:
    worker = make(num_sub_workers=2)
    x, sum_ = worker.shared_array(8), worker.shared_array(1)
    x[:] = 1
    with worker.session() as s:
        with s.scope():
            y = s.empty(8)
            first = s.submit(scale, x, 2.5, y)
            s.submit(total, y, sum_)
            np.testing.assert_array_equal(first.result(), 2.5)
        assert s.submit(total, x, sum_).result() is sum_
        assert first.done()
    assert sum_[0] == 28
    assert first.result(timeout=1).shape == (8,)


def test_a_session_waits_before_it_overwrites_what_others_read(make) -> None:
    worker = make(num_sub_workers=4)
    buffer, out = worker.shared_array(4096), worker.shared_array((64, 4096))
    with worker.session() as s:
        for value, row in enumerate(out):
            s.submit(write, value, buffer)
            s.submit(scale, buffer, 1.0, row)
    np.testing.assert_array_equal(out[:, 0], np.arange(64))


def test_a_task_ends_while_its_handle_is_polled(make) -> None:
    """Polling the handle does not drive the run; meanwhile the driver's own thread drives it."""
    worker = make(num_sub_workers=1)
    row = worker.shared_array((8,))
    with worker.session() as s:
        handle = s.submit(write, 7, row)
        limit = time.monotonic() + 20
        while not handle.done():
            assert time.monotonic() < limit
        assert row[0] == 7


def test_a_submit_without_retries_overrides_those_of_the_task(make) -> None:
    worker = make(num_sub_workers=1)
    counts = worker.shared_array((2, 1))

    @task(retries=2)
    def fail(runs: OutExisting) -> None:
        runs += 1
        raise ValueError("no luck")

    for row, options in zip(counts, ({}, {"retries": 0}), strict=True):
        with pytest.raises(TaskFailedError, match="no luck"), worker.session() as s:
            s.submit(fail, row, **options)
    assert counts.tolist() == [[3], [1]]


def test_progress_ends_with_everything_done(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((20, 16))
    seen: list[Progress] = []
    with worker.session(progress=seen.append) as s:
        for i, row in enumerate(rows):
            s.submit(write, i, row)
    assert seen[-1] == Progress(20, 20, 0, is_over=True)


def test_an_array_declared_in_cannot_be_written(make) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)
    with pytest.raises(TaskFailedError, match="read-only"), worker.session() as s:
        s.submit(spoil, x)
    assert not x.any()


def test_weights_stay_on_the_chip(make) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    chip = ChipCallable(on_chip)
    worker.register(chip)
    weights = np.arange(1024, dtype=np.float32)
    address = worker.malloc(weights.nbytes)
    worker.copy_to(address, weights)
    out, back = worker.shared_array(1024), np.zeros_like(weights)
    on_the_chip = ContinuousTensor.from_pointer(address, (1024,), "float32", child_memory=True)
    for _ in range(2):
        with worker.session() as s:
            s.submit(chip, on_the_chip, out, worker=0)
        np.testing.assert_array_equal(out, 2 * weights)
    worker.copy_from(back, address)
    np.testing.assert_array_equal(back, weights)
    with pytest.raises(UsageError, match="from is not contiguous; pass a contiguous copy of it"):
        worker.copy_to(address, weights[::2])
    with pytest.raises(UsageError, match="pass such an array, and copy its content to this array"):
        worker.copy_from(back[::2], address)
    worker.free(address)
    with pytest.raises(ControlError, match="was freed"):
        worker.free(address)
    with pytest.raises(UsageError, match="no chip child 1"):
        worker.malloc(4, worker=1)


def add_scalars(orch: Any, args: Any, config: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) + args.scalar(0) * args.scalar(1)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_graph_function_of_a_child_worker_has_a_typed_submit(is_first: bool) -> None:
    with Worker(level=4) as worker:
        if is_first:
            step = worker.register(add_scalars)
        children = [worker.add_worker(Worker(level=3)) for _ in range(2)]
        if not is_first:
            step = worker.register(add_scalars)
        x, y = worker.shared_array(4), worker.shared_array(4)
        with worker.session() as s:
            first = s.submit(step, x, y, 2, np.int64(3), worker=children[0])
            s.submit(step, y, x, 1, True, worker=children[1])  # waits for the first task
            s.submit_group(step, [(x[:2], y[:2], 0, 0), (x[2:], y[2:], 0, 0)])
            assert [array is one for array, one in zip(first.outputs, (x, y), strict=True)]
            with pytest.raises(UsageError, match="argument 1 of the graph function add_scalars is"):
                s.submit(step, x, 2.5)
        assert (x == 7).all()
        assert (y == 7).all()


def test_task_args_state_the_use_of_each_array_of_a_graph_function() -> None:
    with Worker(level=4) as worker:
        step = worker.register(add_scalars)
        child = worker.add_worker(Worker(level=3))
        x, y = worker.shared_array(4), worker.shared_array(4)
        tags = TensorArgType.INPUT, TensorArgType.OUTPUT_EXISTING
        args = given((x, tags[0]), (y, tags[1]), scalars=(2, 3))
        with worker.session() as s:
            s.submit(step, args, worker=child)
        assert y.tolist() == [6, 6, 6, 6]


def test_a_task_that_no_session_submits_is_refused(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(scale)
    x = worker.shared_array(4)
    message = "scale is a @task, and was submitted with a TaskArg"
    for scalars in ((), (1,), (2,), (0, 0, 0)):
        args = given((x, TensorArgType.INPUT), scalars=scalars)
        with pytest.raises(TaskFailedError, match=message):
            worker.run(lambda orch, *_, args=args: orch.submit_sub(handle, args))


def test_a_function_without_directions_needs_a_child_worker(make) -> None:
    worker = make(num_sub_workers=1)
    step = worker.register(add_scalars)
    with worker.session() as s, pytest.raises(UsageError, match="put @task before its function"):
        s.submit(step)


@kernel(core="aiv")
def multiply(x: In, factor: Scalar, out: Out) -> None:
    np.multiply(x, factor, out=out)


def multiply_on_chip(rt: Any, x: In, out: Out, factor: Any) -> None:
    rt.submit(multiply, x, factor, out)


def test_an_orchestration_on_a_chip_gets_the_value_of_a_scalar(make) -> None:
    """A float that the chip would get as an integer is refused."""
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    x, out = worker.shared_array(4), worker.shared_array(4)
    x[:] = 2
    for signature, factor, expected in (
        (None, 3, 6.0),
        (("in", "out", "scalar"), -3, -6.0),
        (("in", "out", Scalar(float)), 3.5, 7.0),
        (("in", "out", Scalar("float32")), 3.5, 7.0),
        (("in", "out", Scalar(float)), 3, 6.0),
    ):
        chip = ChipCallable(multiply_on_chip, signature=signature)
        with worker.session() as s:
            s.submit(chip, x, out, factor)
        assert (out == expected).all()
    for signature in (None, ("in", "out", "scalar")):
        chip = ChipCallable(multiply_on_chip, signature=signature)
        with worker.session() as s, pytest.raises(UsageError, match=r"declare its type.*Scalar"):
            s.submit(chip, x, out, 3.5)
