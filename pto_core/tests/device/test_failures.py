"""A failed run raises an error with its cause and fields, and the device remains usable."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import CallConfig, ChipCallable, Device, Task, kernel
from pto_core.errors import (
    OrchestrationError,
    TaskFailedError,
    UnsupportedError,
    UsageError,
)


class Surprise(Exception):
    pass


@kernel(core="aiv")
def nothing(*args):
    pass


@kernel(core="aiv")
def fail(a):
    raise Surprise("in the kernel")


def submit_failure(rt, a):
    rt.publish(rt.add_task(fail, (a,)))


@pytest.fixture(autouse=True)
def works_afterwards(device: Device) -> Iterator[None]:
    yield
    assert device.run(lambda rt: rt.publish(rt.add_task(nothing, ()))).tasks == 1


def test_a_device_without_streams_refuses_to_wait_for_one(device: Device) -> None:
    with pytest.raises(UnsupportedError, match="cannot wait for a stream of another"):
        device.run(lambda rt: None, stream=1)


def test_a_kernel_failure_names_kernel_task_and_core(device: Device) -> None:
    with pytest.raises(TaskFailedError) as caught:
        device.run(submit_failure, np.zeros(3))
    error = caught.value
    assert (error.kernel, error.task, error.func_id) == ("fail", 0, 0)
    assert error.core is not None
    assert isinstance(error.__cause__, Surprise)
    assert 'raise Surprise("in the kernel")' in "".join(traceback.format_exception(error))
    assert pickle.loads(pickle.dumps(error)).kernel == "fail"


def test_a_failure_of_the_second_of_two_kernels_names_it(device: Device) -> None:
    def graph(rt, a):
        rt.publish(rt.add_task(nothing, ()))
        rt.publish(rt.add_task(fail, (a,)))

    with pytest.raises(TaskFailedError) as caught:
        device.run(graph, np.zeros(3))
    assert (caught.value.kernel, caught.value.task, caught.value.func_id) == ("fail", 1, 1)


def test_a_kernel_failure_on_the_last_core_names_it(runtime: str, tmp_path: Path) -> None:
    """One scheduler gives task i to AIV i. The AIV cores have the numbers 24 to 71."""

    @kernel(core="aiv")
    def fail_on_the_last_core(number):
        if number == 47:
            raise Surprise("on the last core")

    def graph(rt):
        for number in range(48):
            rt.publish(rt.add_task(fail_on_the_last_core, (number,)))

    settings: dict[str, Any] = {"cache_dir": tmp_path}
    if runtime == "aicpu_build_graph":
        settings["hbg.build_mode"] = 0  # all tasks are ready at once
    with (
        pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as device,
        pytest.raises(TaskFailedError) as caught,
    ):
        device.run(graph, config=CallConfig(aicpu_thread_num=1))
    assert (caught.value.task, caught.value.core) == (47, 71)


def test_variables_of_a_failed_kernel_are_released(device: Device) -> None:
    """The variables are views of device memory; reading one after the device closed would crash."""

    @kernel(core="aiv")
    def chain(a):
        try:
            raise KeyError("first")
        except KeyError:
            part = a[1:]
            raise Surprise(str(part.size)) from None

    with pytest.raises(TaskFailedError) as caught:
        device.run(lambda rt, a: rt.publish(rt.add_task(chain, (a,))), np.zeros(3))
    cause: BaseException | None = caught.value.__cause__
    seen = 0
    while cause is not None:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            assert not frame.f_locals
            seen += 1
        cause = cause.__context__
    assert seen == 2


def test_the_first_failure_wins(device: Device) -> None:
    def graph(rt, a):
        tasks = [rt.add_task(fail, (a,)) for _ in range(20)]
        for earlier, later in itertools.pairwise(tasks):
            rt.add_successor(earlier, later)
        for task in tasks:
            rt.publish(task)

    with pytest.raises(TaskFailedError) as caught:
        device.run(graph, np.zeros(3))
    assert caught.value.task == 0


def test_an_exception_of_an_orchestration_is_raised_unchanged(device: Device) -> None:
    surprise = Surprise("in the orchestration")

    def graph(rt, a):
        rt.publish(rt.add_task(nothing, (a,)))
        raise surprise

    with pytest.raises(Surprise) as caught:
        device.run(graph, np.zeros(3))
    assert caught.value is surprise
    assert any(entry.name == "graph" for entry in caught.traceback)


def test_an_ignored_native_error_is_raised_at_the_end(device: Device) -> None:
    def graph(rt):
        task = rt.add_task(nothing, ())
        with pytest.raises(UsageError):
            rt.add_successor(task, 77)

    with pytest.raises(UsageError, match="77") as caught:
        device.run(graph)
    assert any(entry.name == "graph" for entry in caught.traceback)


def test_a_native_error_precedes_later_errors(device: Device) -> None:
    def graph(rt):
        task = rt.add_task(nothing, ())
        try:
            rt.add_successor(task, 77)
        except UsageError:
            raise Surprise("later") from None

    with pytest.raises(UsageError, match="77") as caught:
        device.run(graph)
    assert caught.value.__notes__ == ["the orchestration then raised Surprise: later"]


@pytest.mark.parametrize(("given", "code"), [(3, 3), (None, 0), ("bye", 1)])
def test_an_orchestration_that_exits_fails_the_run(device: Device, given: Any, code: int) -> None:
    def leave(rt):
        raise SystemExit(given)

    with pytest.raises(OrchestrationError, match="'leave' raised SystemExit") as caught:
        device.run(leave)
    assert caught.value.code == code
    assert isinstance(caught.value.__cause__, SystemExit)


def test_a_kernel_that_exits_fails_the_task(device: Device) -> None:
    @kernel(core="aiv")
    def leave():
        raise SystemExit(3)

    with pytest.raises(
        TaskFailedError, match=r"'leave' raised SystemExit: 3 .*on AIV \d"
    ) as caught:
        device.run(lambda rt: rt.publish(rt.add_task(leave, ())))
    assert isinstance(caught.value.__cause__, SystemExit)


def test_an_orchestration_fails_by_its_result(device: Device) -> None:
    def returning(result):
        return lambda rt: result

    assert device.run(returning(0)).tasks == 0
    with pytest.raises(OrchestrationError, match="returned -5") as caught:
        device.run(returning(-5))
    assert caught.value.code == -5
    for result in (True, 1.5, [], "done"):
        with pytest.raises(UsageError, match="return nothing, or an int"):
            device.run(returning(result))


def steps_of_a_host(x):
    pass


def test_kernels_tasks_and_lazy_functions_are_no_orchestrations(device: Device) -> None:
    async def later(rt):
        pass

    def steps(rt):
        yield rt

    with pytest.raises(UsageError, match="'nothing' is a kernel, not an orchestration"):
        device.run(nothing)
    with pytest.raises(UsageError, match="'nothing' is a kernel, not an orchestration"):
        ChipCallable(nothing)
    for run in (device.run, ChipCallable):
        with pytest.raises(UsageError, match=r"is a @task, which runs in a process of a Worker"):
            run(Task(steps_of_a_host))
    with pytest.raises(UsageError, match="'later' is an async function"):
        device.run(later)
    with pytest.raises(UsageError, match="'steps' is a generator function"):
        device.run(steps)


@pytest.mark.parametrize("config", [{}, 3, "x"])
def test_a_config_is_a_call_config(device: Device, config: Any) -> None:
    with pytest.raises(UsageError, match="pass a CallConfig"):
        device.run(lambda rt: None, config=config)


def test_block_dim_counts(device: Device) -> None:
    report = device.run(lambda rt: None, config=CallConfig(block_dim=2))
    assert [core for core, _, _ in report.cores] == ["aic"] * 2 + ["aiv"] * 4
    assert len(device.run(lambda rt: None).cores) == 72


def test_the_repr_of_a_report_is_short(device: Device) -> None:
    report = device.run(lambda rt: rt.publish(rt.add_task(nothing, ())))
    assert repr(report).startswith("<RunReport: 1 tasks on 1 of 72 cores")
    assert len(repr(report)) < 200
