"""Errors for kernels and tasks that return a value, or assign to the name of an Out parameter."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_core import In, InOut, Out, OutExisting, Scalar, kernel, open_device, task
from pto_core.errors import TaskFailedError, UsageError


def returns(x: In, out: Out) -> Any:
    out[:] = x
    return out


def assigns(x: In, out: Out) -> None:
    out = x * 2  # noqa: F841


def assigns_at_last(x: In, out: InOut) -> None:
    out += x
    out = out + 1


def assigns_a_number(out: OutExisting) -> None:
    out = 3.0  # noqa: F841


def assigns_in_a_loop(x: In, out: Out) -> None:
    for out in (x * 2, x * 3):  # noqa: B007
        pass


def assigns_a_captured_name(x: In, out: Out) -> None:
    out = x * 2
    (lambda: out)()


def works_in_place(x: In, out: InOut) -> None:
    out += x
    out *= 2


def takes_a_view(x: In, out: Out) -> None:
    out = out.reshape(-1)
    out[:] = x.ravel()


def takes_an_empty_name(x: In, out: Out) -> None:
    out[:] = x
    del out


def assigns_an_input(x: In, out: Out) -> None:
    x = x + 1
    out[:] = x


LOST = [assigns, assigns_at_last, assigns_in_a_loop, assigns_a_captured_name]
KEPT = [works_in_place, takes_a_view, takes_an_empty_name, assigns_an_input]


@pytest.mark.parametrize("function", LOST)
def test_a_task_that_assigns_a_new_array_to_an_output_is_refused(function: Callable[..., None]):
    with pytest.raises(UsageError, match=rf"{function.__name__} assigned .* ndarray .* out\[:\] ="):
        task(function)(np.ones((2, 3)), np.zeros((2, 3)))
    with pytest.raises(UsageError, match="its parameter out"):
        task(function)(np.ones((2, 3)), out=np.zeros((2, 3)))


@pytest.mark.parametrize("function", KEPT)
def test_a_task_that_writes_into_its_argument_is_accepted(function: Callable[..., None]):
    out = np.zeros((2, 3))
    task(function)(np.ones((2, 3)), out)
    assert (out == (1 if function is takes_a_view or function is takes_an_empty_name else 2)).all()


def test_a_number_and_an_empty_array():
    with pytest.raises(UsageError, match="assigned a new value of type float"):
        task(assigns_a_number)(np.zeros(1))
    task(takes_a_view)(np.zeros((0, 3)), np.zeros((0, 3)))


def test_a_task_may_return_a_value():
    arrays = [np.ones(3)] * returns.__code__.co_argcount
    assert task(returns)(*arrays) is not None


def test_a_profiled_task_runs_unchecked():
    profile = cProfile.Profile()
    profile.runcall(task(assigns), np.ones(3), np.zeros(3))
    assert any(entry.code is assigns.__code__ for entry in profile.getstats())


def test_the_exception_of_a_wrapped_function_is_raised():
    @task
    def fails(out: Out) -> None:
        out = out * 2
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(np.zeros(3))


@pytest.mark.parametrize(
    ("function", "message"),
    [(returns, "kernel returns returned"), (assigns, "assigns assigned a new value")],
)
def test_a_kernel_loses_no_result(function: Callable[..., Any], message: str):
    lossy = kernel(core="aiv")(function)

    def graph(rt: Any, x: In, out: Out) -> None:
        rt.submit(lossy, x, out)

    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        with pytest.raises(TaskFailedError, match=message) as caught:
            device.run(graph, np.ones(3), np.zeros(3))
        assert isinstance(caught.value.__cause__, UsageError)


def test_a_kernel_with_declared_arguments_is_checked_by_position(
    recwarn: pytest.WarningsRecorder,
):
    @kernel(core="aiv", signature=("in", "scalar", "out"))
    def late(values, count: Scalar, target):
        target = values * count  # noqa: F841

    @kernel(core="aiv", signature=("in", "out"))
    def in_place(values, target):
        target = target.reshape(-1)
        target[:] = values

    def graph(rt: Any, x: In, out: Out) -> None:
        rt.submit(in_place, x, out)

    def lossy(rt: Any, x: In, out: Out) -> None:
        rt.submit(late, x, 2, out)

    out = np.zeros(3)
    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        device.run(graph, np.ones(3), out)
        with pytest.raises(TaskFailedError, match="its parameter target"):
            device.run(lossy, np.ones(3), np.zeros(3))
    assert out.tolist() == [1, 1, 1]
    assert not recwarn.list, "the check kept an array of the kernel"
