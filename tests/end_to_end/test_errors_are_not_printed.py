"""An error that a call raises is not printed as well: what to print is the caller's decision."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pto_core import ChipCallable, CoreCallable, Device, Worker, kernel, open_device
from pto_core.errors import (
    ChildDiedError,
    CompileError,
    DeadlockError,
    OrchestrationError,
    PtoError,
    TaskFailedError,
    UsageError,
)
from pto_core.kernels import KernelSource

RINGS = "tensormap_and_ringbuffer"


@kernel(core="aiv")
def nothing() -> None:
    pass


@kernel(core="aiv")
def broken() -> None:
    raise ValueError("in a kernel")


def deadlock(device: Device) -> None:
    def graph(rt: Any) -> None:
        with rt.scope():
            for _ in range(8):
                rt.submit(nothing)

    device.run(graph)


def failing_kernel(device: Device) -> None:
    def graph(rt: Any) -> None:
        if device.config["runtime"] == RINGS:
            rt.submit(broken)
        else:
            rt.publish(rt.add_task(broken, ()))

    device.run(graph)


def failing_graph(device: Device) -> None:
    def graph(rt: Any) -> None:
        raise KeyError("in an orchestration")

    device.run(graph)


def wrong_argument(device: Device) -> None:
    device.run(lambda rt, x: None, object())


ANY = [(failing_kernel, TaskFailedError), (failing_graph, KeyError), (wrong_argument, UsageError)]
OF_RINGS = [(deadlock, DeadlockError)]


@pytest.mark.parametrize(
    ("runtime", "program", "error"),
    [
        *(("host_build_graph", *case) for case in ANY),
        *(("aicpu_build_graph", *case) for case in ANY),
        *((RINGS, *case) for case in ANY + OF_RINGS),
    ],
)
def test_an_error_of_a_device_is_not_printed(
    runtime: str,
    program: Callable[[Device], None],
    error: type[Exception],
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = {"pto2.task_window": 4} if runtime == RINGS else {}
    with open_device("a2a3sim", runtime=runtime, settings=settings) as device:
        with pytest.raises(error):
            program(device)
        device.run(lambda rt: None)
    assert capfd.readouterr() == ("", "")


def test_a_source_that_does_not_compile_is_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("this is no program\n")
    chip = ChipCallable(lambda rt: None, {0: CoreCallable(KernelSource(source), "aiv")})
    with (
        open_device("a2a3sim", runtime="host_build_graph", settings={"cache_dir": tmp_path}) as d,
        pytest.raises(CompileError),
    ):
        d.run(chip)
    assert capfd.readouterr() == ("", "")


def raises() -> None:
    raise ValueError("in a task")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def waits() -> None:
    signal.pause()


@pytest.mark.parametrize("policy", ["fail", "restart"])
@pytest.mark.parametrize(
    ("function", "error"),
    [(raises, TaskFailedError), (dies, ChildDiedError), (waits, PtoError)],
)
def test_an_error_of_a_worker_is_not_printed(
    policy: str,
    function: Callable[[], None],
    error: type[Exception],
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Worker(3, num_sub_workers=1, on_worker_death=policy, task_timeout_s=1.0) as worker:
        handle = worker.register(function)
        with pytest.raises(error):
            worker.run(lambda orch, args, config: orch.submit_sub(handle))
    assert capfd.readouterr() == ("", "")


def test_an_error_of_a_graph_function_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def graph(orch: Any, args: Any, config: Any) -> None:
        raise OrchestrationError("in a graph function")

    with Worker(3, num_sub_workers=1) as worker, pytest.raises(OrchestrationError):
        worker.run(graph)
    assert capfd.readouterr() == ("", "")
