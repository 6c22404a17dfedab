"""The engine uses only the endpoint interface: a Worker runs over a transport in plain Python."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import packets
import pytest

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.errors import TaskFailedError, UsageError

ADDITIONS = 50
RUNS_MAX = 100  # the number of attempts; the driver's own thread may make all calls of a run


def test_a_worker_runs_over_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def add(args) -> None:
        args.tensor(0)[:] += 1

    def fail() -> None:
        raise ValueError("told over packets")

    with Worker(level=3, num_sub_workers=2, transport=packets.NAME) as worker:
        numbers = worker.shared_array((4,), np.int64)
        adding, failing = worker.register(add), worker.register(fail)

        def additions(orch, args, config) -> None:
            for _ in range(ADDITIONS):
                arguments = TaskArgs()
                arguments.add_tensor(numbers, TensorArgType.INOUT)
                orch.submit_sub(adding, arguments)

        worker.run(additions)
        assert numbers.tolist() == [ADDITIONS] * 4
        with pytest.raises(TaskFailedError, match="told over packets"):
            worker.run(lambda orch, args, config: orch.submit_sub(failing))
        worker.run(additions)
        assert numbers.tolist() == [2 * ADDITIONS] * 4


def test_a_worker_refuses_a_transport_without_same_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets.install(tmp_path)
    module = tmp_path / "pto_transport_packets.py"
    module.write_text(module.read_text().replace(', "same_addresses"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    # so that the import below is undone after the test
    monkeypatch.setitem(sys.modules, module.stem, sys)
    del sys.modules[module.stem]
    with pytest.raises(UsageError, match="'packets' does not claim 'same_addresses'") as caught:
        Worker(level=3, num_sub_workers=2, transport=packets.NAME)
    assert caught.value.value == packets.NAME


class StopError(Exception):
    """The exception of a signal handler."""


def arm(monkeypatch: pytest.MonkeyPatch, armed: list[str], name: str) -> None:
    """Raise a signal during the main thread's next call of a method.

    A call on the driver's own thread, which does not handle signals, does not raise it.
    """
    parent = importlib.import_module("pto_transport_packets").PacketsEndpoint
    call = getattr(parent, name)

    def interrupted(*args: Any) -> Any:
        if name in armed and threading.current_thread() is threading.main_thread():
            armed.remove(name)
            signal.raise_signal(signal.SIGINT)
        return call(*args)

    armed.append(name)
    monkeypatch.setattr(parent, name, interrupted)


# Invariant: An exception of a signal handler during a call of a Python transport is raised at the
# caller and breaks no connection.
def test_the_exception_of_a_signal_handler_in_a_call_is_raised_at_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a call would break the connection, so the signal is deferred to the end of the call."""
    packets.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    armed: list[str] = []

    def stop(number: int, frame: Any) -> None:
        raise StopError

    old = signal.signal(signal.SIGINT, stop)
    try:
        with Worker(level=3, num_sub_workers=1, transport=packets.NAME) as worker:
            numbers = worker.shared_array((4,), np.int64)

            def add(args) -> None:
                args.tensor(0)[:] += 1

            handle = worker.register(add)

            def graph(orch, args, config) -> None:
                given = TaskArgs()
                given.add_tensor(numbers, TensorArgType.INOUT)
                orch.submit_sub(handle, given)

            worker.run(graph)
            for name in ("submit", "poll"):
                arm(monkeypatch, armed, name)
                with pytest.raises(StopError):  # noqa: PT012
                    for _ in range(RUNS_MAX):
                        worker.run(graph)
                before = int(numbers[0])
                worker.run(graph)
                assert (numbers == before + 1).all()
            assert worker.statistics()["deaths"] == 0
    finally:
        signal.signal(signal.SIGINT, old)


def test_a_signal_handler_may_use_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of Ctrl-C runs between the calls of the transport, not inside them."""
    packets.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    armed: list[str] = []
    counts: list[int] = []
    old = signal.getsignal(signal.SIGINT)
    try:
        with Worker(level=3, num_sub_workers=1, transport=packets.NAME) as worker:
            handle = worker.register(lambda: None)

            def graph(orch, args, config) -> None:
                orch.submit_sub(handle)

            worker.run(graph)
            signal.signal(signal.SIGINT, lambda *_: counts.append(worker.statistics()["submitted"]))
            arm(monkeypatch, armed, "poll")
            while armed:
                worker.run(graph)
            worker.run(graph)
    finally:
        signal.signal(signal.SIGINT, old)
    assert counts == [1]
