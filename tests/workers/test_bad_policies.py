"""Placement policies of the program: their arguments, and the effect of invalid choices."""

from __future__ import annotations

from typing import Any

import pytest

from pto_core import Out, task
from pto_core.errors import UsageError


@task
def write(value: int, out: Out) -> None:
    out[:] = value


# Invariant: An exception or invalid choice of a policy never reaches the engine; it ends its
# run with one error.
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda candidates, preferred: 1 // 0, "policy .*lambda> raised ZeroDivisionError"),
        (lambda candidates, preferred: 7, r"lambda> picked 7, .*return one of \[0"),
        (lambda candidates, preferred: -1, "lambda> picked -1"),
        (lambda candidates, preferred: "one", "lambda> picked 'one'"),
        (lambda candidates, preferred: None, "lambda> picked None"),
    ],
)
def test_a_policy_that_fails_ends_its_run(make, policy, message) -> None:
    worker = make(num_sub_workers=2, policy=policy)
    rows = worker.shared_array((20, 8))
    for _ in range(2):
        with pytest.raises(UsageError, match=message), worker.session() as s:  # noqa: PT012
            for row in rows:
                s.submit(write, 1, row)
    with worker.session() as s:
        s.submit(write, 2, rows[0], worker=0)  # with a pin, the policy is not called
    assert (rows[0] == 2).all()
    assert worker.statistics()["deaths"] == 0


def test_a_policy_that_uses_its_worker_gets_an_error(make) -> None:
    handles: list[Any] = []

    def ask(candidates: Any, preferred: int) -> int:
        if handles and handles[-1].done():
            return candidates[0][0]
        return candidates[-1][0]

    worker = make(num_sub_workers=2, policy=ask)
    rows = worker.shared_array((20, 8))
    message = "called the Worker that waits for its decision"
    with pytest.raises(UsageError, match=message), worker.session() as s:  # noqa: PT012
        for row in rows:
            handles.append(s.submit(write, 1, row))
