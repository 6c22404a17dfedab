"""The memory of all processes does not grow with the number of tasks on another host."""

from __future__ import annotations

from many_tasks import memory_after_steps
from remote_hosts import Agent

TASKS = 20_000
STEPS = 4
GROWTH_BYTES = 1 << 20


def test_the_memory_of_each_process_does_not_grow_with_the_tasks(agent: Agent) -> None:
    _, first, *_, last = (used for _, used in memory_after_steps(agent, TASKS, STEPS))
    grown = {name: last[name] - first[name] for name in last}
    assert max(grown.values()) < GROWTH_BYTES, grown
