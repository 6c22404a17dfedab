"""Functions whose body a call would not run, or would run twice, are refused."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

from pto_core import ChipCallable, TaskArgs, TensorArgType, Worker, kernel, open_device, task
from pto_core.errors import TaskFailedError, UsageError


async def waits(*args: Any) -> None:
    raise AssertionError("never executed")


def steps(*args: Any) -> Any:
    yield args


async def waits_in_steps(*args: Any) -> Any:
    yield args


class Waiting:
    async def __call__(self, *args: Any) -> None:
        raise AssertionError("never executed")

    async def method(self, *args: Any) -> None:
        raise AssertionError("never executed")


def returns_coroutine(*args: Any) -> Any:
    return waits(*args)


def returns_steps(*args: Any) -> Any:
    return (one for one in args)


DECLARED: dict[str, Callable[..., Any]] = {
    "async": waits,
    "generator": steps,
    "async generator": waits_in_steps,
    "partial": functools.partial(functools.partial(waits, 1), 2),
    "method": Waiting().method,
    "object": Waiting(),
    "static": staticmethod(waits),
}
UNDECLARED = {
    "coroutine": returns_coroutine,
    "steps": returns_steps,
    "called elsewhere": lambda *args: waits(),
}
BY_RESULT = {**DECLARED, **UNDECLARED}
REFUSED = "would not run its body|body did not run"


@pytest.mark.parametrize("function", DECLARED.values(), ids=DECLARED)
@pytest.mark.parametrize(
    "enter",
    [
        lambda function: Worker(level=3).register(function),
        lambda function: Worker(level=3).register(function, serialise=True),
        lambda function: ChipCallable(function),
        lambda function: kernel(core="aiv")(function),
        task,
    ],
    ids=["register", "serialise", "chip", "kernel", "task"],
)
def test_a_function_that_would_not_run_is_refused_where_it_enters(enter, function) -> None:
    with pytest.raises(UsageError, match="would not run its body; use a plain function"):
        enter(function)


def test_an_import_path_is_followed() -> None:
    with pytest.raises(UsageError, match="'sleep' is an async function"):
        Worker(level=3).register("asyncio:sleep")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", BY_RESULT.values(), ids=BY_RESULT)
def test_a_graph_function_that_does_not_run_is_refused(make, function) -> None:
    with make() as worker:
        for call in (worker.run, worker.capture, worker.graph, worker.check):
            with pytest.raises(UsageError, match=REFUSED):
                call(function)
        worker.run(lambda orch, args, config: None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", UNDECLARED.values(), ids=UNDECLARED)
def test_a_task_whose_body_does_not_run_fails(make, function) -> None:
    with make(num_sub_workers=1) as worker:
        handle = worker.register(function)
        with pytest.raises(TaskFailedError, match=REFUSED):
            worker.run(lambda orch, args, config: orch.submit_sub(handle))


@pytest.mark.filterwarnings("error")
def test_an_orchestration_whose_body_does_not_run_fails() -> None:
    with open_device(backend="a2a3sim") as device:
        with pytest.raises(UsageError, match="body did not run"):
            device.run(returns_coroutine)
        with pytest.raises(UsageError, match="body did not run"):
            kernel(core="aiv")(returns_coroutine)(np.zeros(1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("listener", [waits, Waiting()])
def test_a_progress_listener_is_a_plain_function(make, listener) -> None:
    with (
        make(num_sub_workers=1) as worker,
        pytest.raises(UsageError, match="would not run its body"),
        worker.session(progress=listener),
    ):
        pass


def forks_and_returns(args: Any) -> None:
    os.fork()
    args.tensor(0)[:] += 1


def forks_and_raises(args: Any) -> None:
    if os.fork() == 0:
        raise ValueError("in the copy")
    args.tensor(0)[:] += 1


def forks_and_exits(args: Any) -> None:
    if os.fork() == 0:
        sys.exit(0)
    args.tensor(0)[:] += 1


def forks_twice_and_waits(args: Any) -> None:
    first = os.fork()
    second = os.fork()
    for copy in (first, second):
        if copy and first:
            os.waitpid(copy, 0)


def adds(args: Any) -> None:
    args.tensor(0)[:] += 1


def runs_on(processes: list[psutil.Process]) -> bool:
    """Return whether one of the processes runs for 10 s more."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if all(one.status() == psutil.STATUS_ZOMBIE for one in processes):
            return False
    return True


def uses_processes(args: Any) -> None:
    process = multiprocessing.get_context("fork").Process(target=os.getpid)
    process.start()
    process.join()
    subprocess.run(["/bin/true"], check=True)
    subprocess.run(["/bin/true"], check=True, preexec_fn=os.getpid)
    copy = os.fork()
    if copy == 0:
        os._exit(0)
    os.waitpid(copy, 0)
    args.tensor(0)[:] += 1


def submitted(worker: Worker, handle: Any, array: Any, times: int) -> None:
    args = TaskArgs()
    args.add_tensor(array, TensorArgType.INOUT)

    def graph(orch: Any, _: Any, config: Any) -> None:
        for _ in range(times):
            orch.submit_sub(handle, args)

    worker.run(graph)


FORKING = [forks_and_returns, forks_and_raises, forks_and_exits, forks_twice_and_waits]


def test_a_task_that_forks_fails_and_leaves_the_child_right(make) -> None:
    with make(num_sub_workers=1) as worker:
        adding, *functions = (worker.register(each) for each in (adds, *FORKING))
        array = worker.shared_array(4, "int64")
        for forking in 5 * functions:
            with pytest.raises(TaskFailedError, match=r"called fork\(\), and the new process"):
                submitted(worker, forking, array, 1)
            array[:] = 0
            submitted(worker, adding, array, 20)
            assert array.tolist() == [20] * 4
        (child,) = psutil.Process().children()
        assert not runs_on(child.children())


def test_processes_that_do_not_return_are_permitted(make) -> None:
    with make(num_sub_workers=1) as worker:
        array = worker.shared_array(4, "int64")
        submitted(worker, worker.register(uses_processes), array, 3)
        assert array.tolist() == [3] * 4


copies: list[int] = []


@kernel(core="aiv")
def forking_kernel(out: Any) -> None:
    copies.append(os.fork())
    out[:] = 1


def test_a_kernel_or_an_orchestration_that_forks_fails() -> None:
    def forks(rt: Any, out: Any) -> None:
        copies.append(os.fork())

    def runs(rt: Any, out: Any) -> None:
        rt.publish(rt.add_task(forking_kernel, (out,)))

    with open_device(backend="a2a3sim") as device:
        out = np.zeros(4)
        with pytest.raises(UsageError, match=r"orchestration 'forks' called fork\(\)"):
            device.run(forks, out)
        with pytest.raises(TaskFailedError, match=r"kernel 'forking_kernel' called fork\(\)"):
            device.run(runs, out)
    assert [os.waitpid(copies.pop(), 0)[1] for _ in range(2)] == [1 << 8, 1 << 8]
