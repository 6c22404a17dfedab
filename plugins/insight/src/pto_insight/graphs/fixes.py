"""The changes of a program that a check advises."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pto_insight.graphs.findings import Race
    from pto_insight.graphs.log import AccessLog
    from pto_insight.graphs.logged_graph import Task

_NEAR = 32


def missing_edge(log: AccessLog, first: Task, second: Task) -> str:
    """Return the change that orders two tasks, in the language of the program."""
    edge = f"add an edge from {first.label} to {second.label}"
    if not log.has_accesses:
        return edge
    if second.file and second.file.endswith(".py"):
        edge = f"submit {second.label} with after={first.label}"
    elif second.file:
        edge = f"call pto2_rt_add_dep for {first.label} and {second.label} after the second submit"
    return edge if log.is_full else f"run with {_full_hazards(second)}, or {edge}"


def existing_output(second: Task) -> str:
    """Return the change of a declaration OUTPUT_EXISTING that leaves two writers unordered."""
    return f"declare it OUTPUT or INOUT in {second.label}, with {_full_hazards(second)}"


def mark_implied(races: Iterable[Race], is_before: Callable[[int, int], bool]) -> tuple[Race, ...]:
    """Mark the races that the fix of another one orders, too.

    An edge between two tasks orders all tasks up to the first one with all tasks from the second
    one on. A race is compared with the nearest ones that share a task with it.
    """
    found = list(races)
    firsts = _sorted_by_key((race.second.index, race.first.index) for race in found)
    seconds = _sorted_by_key((race.first.index, race.second.index) for race in found)

    def is_implied(race: Race) -> bool:
        first, second = race.first.index, race.second.index
        if first == second:  # two blocks of one task
            return False
        after = bisect_right(firsts[second], first)
        before = bisect_left(seconds[first], second)
        return any(is_before(first, one) for one in firsts[second][after : after + _NEAR]) or any(
            is_before(one, second) for one in seconds[first][max(0, before - _NEAR) : before]
        )

    return tuple(replace(race, is_implied=is_implied(race)) for race in found)


def _sorted_by_key(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    values: dict[int, list[int]] = defaultdict(list)
    for key, value in sorted(set(pairs)):
        values[key].append(value)
    return values


def _full_hazards(task: Task) -> str:
    is_python = task.file is None or task.file.endswith(".py")
    return 'hazards="full"' if is_python else "--hazards full"
