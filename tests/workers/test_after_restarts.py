"""A restarted child works like the one before it, after any number of deaths."""

from __future__ import annotations

import os
from typing import Any

import pytest
from task_arguments import given

from pto_core import CallConfig, TensorArgType
from pto_core.errors import ChildDiedError

DEATHS = 8
"""More deaths than a child survives that completes no task between them."""
OUT = TensorArgType.OUTPUT


def leave(args: Any) -> None:
    os._exit(3)


def write(args: Any) -> None:
    args.tensor(0)[:] = args.scalar(0)


def test_a_child_that_works_between_its_deaths_is_restarted_each_time(make) -> None:
    worker = make(num_sub_workers=1)
    fatal, handle = worker.register(leave), worker.register(write)
    out = worker.shared_array(8)
    for number in range(DEATHS):
        with pytest.raises(ChildDiedError):
            worker.run(lambda orch, args, config: orch.submit_sub(fatal))
        worker.run(
            lambda orch, args, config, number=number: orch.submit_sub(
                handle, given((out, OUT), scalars=(number,))
            )
        )
        assert (out == number).all()
    counts = worker.statistics()
    assert (counts["deaths"], counts["restarts"]) == (DEATHS, DEATHS)


def test_a_restarted_child_gets_the_configurations_that_were_sent_to_the_one_before(make) -> None:
    """A child receives each CallConfig once, so a new child must receive them again."""
    top = make(level=4)
    host = make(level=3, num_sub_workers=1)
    seen = top.shared_array(4, "int64")

    def note(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[args.scalar(0)] = config.block_dim

    def end(orch: Any, args: Any, config: Any) -> None:
        os._exit(3)

    noted, ended = top.register(note), top.register(end)
    top.add_worker(host)
    configs = [CallConfig(block_dim=3), CallConfig(block_dim=5)]

    def run(handle: Any, number: int) -> None:
        arguments = given((seen, TensorArgType.INOUT), scalars=(number,))
        top.run(
            lambda orch, args, config: orch.submit_next_level(handle, arguments, config),
            config=configs[number % 2],
        )

    for number in range(2):
        run(noted, number)
    with pytest.raises(ChildDiedError):
        run(ended, 0)
    for number in (2, 3):
        run(noted, number)
    assert list(seen) == [3, 5, 3, 5]
