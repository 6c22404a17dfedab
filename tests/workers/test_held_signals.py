"""Signals in the middle of an event of the reference engine, and while a policy is asked."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pto_core import Out, hierarchy, task
from pto_core.hierarchy.engine import events


@task
def write(value: int, out: Out) -> None:
    out[:] = value


def one_run(worker: Any, rows: Any) -> None:
    with worker.session() as s, s.scope():
        for row in rows:
            s.submit(write, 3, row)


@pytest.fixture
def engine() -> str:
    return "reference"


@pytest.mark.parametrize(
    "kind", ["RunBegin", "ScopeBegin", "Submit", "Dispatch", "Completion", "ScopeEnd", "RunEnd"]
)
def test_an_interrupt_inside_an_event_is_raised_behind_it(make, monkeypatch, kind) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    rows = worker.shared_array((20, 8))
    engine = hierarchy.engine.ReferenceEngine
    handle = engine.handle
    met: list[bool] = []

    def interrupted(self: Any, event: Any) -> Any:
        if type(event) is not getattr(events, kind) or met:
            return handle(self, event)
        met.append(False)
        instructions = handle(self, event)
        signal.raise_signal(signal.SIGINT)
        met[0] = True
        return instructions

    monkeypatch.setattr(engine, "handle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one_run(worker, rows)
    assert met == [True]  # it went on behind the signal
    rows[:] = 0
    one_run(worker, rows)
    assert (rows == 3).all()


@pytest.fixture
def handler() -> Iterator[None]:
    def interrupted(number: int, frame: Any) -> None:
        raise InterruptedError("by the handler")

    before = signal.signal(signal.SIGUSR1, interrupted)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_a_signal_while_a_policy_is_asked_reaches_the_policy(make, handler, engine) -> None:
    raised: list[str] = []

    def policy(candidates: Any, preferred: int) -> int:
        if threading.current_thread() is threading.main_thread():
            try:
                signal.raise_signal(signal.SIGUSR1)
                raised.append("nothing")
            except InterruptedError as error:
                raised.append(str(error))
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    worker.init()
    rows = worker.shared_array((20, 8))
    for _ in range(100):  # the driver's own thread may be quicker than this one
        one_run(worker, rows)
        if raised:
            break
    assert set(raised) == {"by the handler"}
    assert (rows == 3).all()
    with pytest.raises(InterruptedError, match="by the handler"):
        signal.raise_signal(signal.SIGUSR1)
