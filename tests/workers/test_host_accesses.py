"""The program and the tasks of a session use the same arrays."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from pto_core import In, Out, Scalar, Session, task
from pto_core.errors import TaskFailedError, UsageError


@task
def double(x: In, out: Out) -> None:
    out[:] = 2 * x


@task
def double_later(x: In, out: Out, gate: Scalar) -> None:
    os.read(gate, 1)
    out[:] = 2 * x


@task
def fail(out: Out) -> None:
    raise ValueError("no")


def after_wait(s: Session, *arrays: Any) -> threading.Event:
    """Wait for arrays in a thread that then sets the event."""
    over = threading.Event()

    def work() -> None:
        s.wait(*arrays)
        over.set()

    threading.Thread(target=work).start()
    return over


def test_wait_for_an_array_waits_for_the_tasks_that_use_it(make: Any, pipe: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, z = worker.array(np.ones(4)), worker.array(np.zeros(4)), worker.array(np.zeros(4))
    with worker.session() as s:
        s.submit(double_later, x, y, pipe[0])
        s.submit(double, y, y)
        s.wait(z)  # no task uses it
        waits = [after_wait(s, y), after_wait(s, z, x[:2])]
        assert not any(one.wait(0.05) for one in waits)
        os.write(pipe[1], b"1")
        assert all(one.wait(10) for one in waits)
        assert y.tolist() == [4, 4, 4, 4]
        part = s.empty(4, "float64")
        s.submit(double, y, part)
        s.wait(part)
        assert part.numpy().tolist() == [8, 8, 8, 8]


def test_wait_raises_a_failure_unless_it_is_handled(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)
    with worker.session() as s:
        failed = s.submit(fail, x)
        failed_group = s.submit_group(fail, [[x[:2]]])
        failed_group.wait()
        assert isinstance(failed_group.exception(), ValueError)
        with pytest.raises(TaskFailedError, match="no"):
            s.wait(x)
        assert isinstance(failed.exception(), ValueError)
        s.wait(x)
        with pytest.raises(UsageError, match="argument 1 of wait"):
            s.wait(x, "x")
    with pytest.raises(UsageError, match="capture"):
        worker.capture(lambda s: s.wait(x))
