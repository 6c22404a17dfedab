"""The answer to "why does B wait for A?"."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core.errors import UsageError

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import Edge, LoggedGraph, Task


@dataclass(frozen=True)
class Explanation:
    """A shortest chain of edges from ``first`` to ``second``; empty if ``second`` does not wait.

    ``is_reversed``: ``first`` waits for ``second``. Without it and without a chain, nothing orders
    the two tasks.
    """

    first: Task
    second: Task
    chain: tuple[tuple[Task, Edge], ...]
    is_reversed: bool = False

    def __bool__(self) -> bool:
        return bool(self.chain)

    def __str__(self) -> str:
        if self.is_reversed:
            return (
                f"{self.second.label} does not wait for {self.first.label}: "
                f"{self.first.label} waits for {self.second.label}; ask for them in the other order"
            )
        if not self.chain:
            return (
                f"nothing orders {self.second.label} after {self.first.label}: "
                "they can run at the same time, or in either order"
            )
        lines = [f"{self.second.label} waits for {self.first.label}:", _line(self.first)]
        for task, edge in self.chain:
            lines.append(_line(task))
            lines += [f"      {reason}" for reason in edge.reasons]
        return "\n".join(lines)


def explain(graph: LoggedGraph, first: int, second: int) -> Explanation:
    """Return the explanation for two tasks. ``first`` need not be the earlier submit.

    Raises UsageError if both are the same task.
    """
    ends = graph.task(first), graph.task(second)
    if first == second:
        raise UsageError(
            f"both names are of one task, {ends[0].label}; name two tasks",
            name="task",
            value=first,
        )
    if not graph.is_before(first, second):
        return Explanation(*ends, (), is_reversed=graph.is_before(second, first))
    into: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, edge in enumerate(graph.edge_rows):
        into[int(edge["second"])].append((int(edge["first"]), row))
    next_edge: dict[int, tuple[int, int]] = {}
    queue = deque([second])
    while first not in next_edge:
        task = queue.popleft()
        for producer, row in into[task]:
            if producer not in next_edge:
                next_edge[producer] = (task, row)
                queue.append(producer)
    chain = []
    at = first
    while at != second:
        at, row = next_edge[at]
        chain.append((graph.task(at), graph.edge_at(row)))
    return Explanation(*ends, tuple(chain))


def _line(task: Task) -> str:
    return f"  {task.label}" + (f"  {task.where}" if task.where else "")
