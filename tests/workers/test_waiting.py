"""Handles of tasks that wait at a gate: the effect of timeouts, and the order of ends."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pto_core import Out, task
from pto_core.errors import TaskFailedError

LIMIT_S = 60


class Gate:
    """A gate at which a task waits until open() is called or the block ends."""

    def __init__(self) -> None:
        self.entrance, self._exit = os.pipe()
        self._is_open = False

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            os.write(self._exit, b"!")

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self.open()

    def close(self) -> None:
        os.close(self.entrance)
        os.close(self._exit)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.close()


other_gate = gate


@task
def hold(entrance: int, out: Out) -> None:
    os.read(entrance, 1)
    out[:] = 1


@task
def hold_and_fail(entrance: int, out: Out) -> None:
    os.read(entrance, 1)
    raise ValueError("held for nothing")


def test_a_wait_for_a_blocked_task_ends_at_its_timeout(make, gate) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)
    with worker.session() as s, gate:
        held = s.submit(hold, gate.entrance, row)
        assert held.wait(0.05) is False
        for ask in (held.result, held.exception):
            with pytest.raises(
                TimeoutError, match=r"task 0 \(hold, .*\) has not ended within 0\.05"
            ):
                ask(timeout=0.05)
        assert not held.done()
        gate.open()
        assert held.wait(LIMIT_S) is True
        assert held.exception(timeout=0) is None
        assert held.result(timeout=0) is row
    assert (row == 1).all()


def test_a_failure_is_no_timeout(make, gate) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)
    with worker.session() as s, gate:
        held = s.submit(hold_and_fail, gate.entrance, row)
        with pytest.raises(TimeoutError):
            held.exception(timeout=0.05)
        gate.open()
        assert isinstance(held.exception(LIMIT_S), TaskFailedError)


@pytest.mark.parametrize("has_edge", [True, False])
def test_an_explicit_edge_delays_a_task_on_another_child(make, gate, other_gate, has_edge) -> None:
    """Without the edge, the other child runs the task at once, so only the edge can delay it."""
    worker = make(num_sub_workers=2, child_window=1)
    rows = worker.shared_array((3, 8))

    @task
    def read_first(out: Out) -> None:
        out[:] = 1 + rows[0]

    worker.register(read_first)
    with worker.session() as s, gate, other_gate:
        held = s.submit(hold, gate.entrance, rows[0], worker=0)
        busy = s.submit(hold, other_gate.entrance, rows[1], worker=1)
        last = s.submit(read_first, rows[2], worker=1, after=[held] if has_edge else [])
        other_gate.open()
        assert busy.wait(LIMIT_S)
        if not has_edge:
            assert last.wait(LIMIT_S)
        assert last.wait(0.05) is not has_edge
        assert not held.done()
        gate.open()
    assert (rows[2] == (2 if has_edge else 1)).all()
