"""Task graphs for the checks, and a check of the order in which their tasks ran."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_devkit.checks import expect


@dataclass(frozen=True)
class Graph:
    """A task graph. Each edge is a pair (from, to) of task indices, with ``from`` < ``to``."""

    name: str
    tasks: int
    edges: list[tuple[int, int]]

    def verify(self, records: np.ndarray[Any, Any]) -> None:
        """Check the log of a recorder kernel: every task ran once, after all of its producers."""
        wrong = np.flatnonzero(records["runs"] != 1)
        expect(
            wrong.size == 0,
            f"{self.name}: {wrong.size} of {self.tasks} tasks did not run exactly once; "
            f"task {wrong[0] if wrong.size else 0} ran "
            f"{records['runs'][wrong[0]] if wrong.size else 0} times",
        )
        if not self.edges:
            return
        ends = np.array(self.edges)
        late = np.flatnonzero(records["start"][ends[:, 1]] < records["end"][ends[:, 0]])
        expect(
            late.size == 0,
            f"{self.name}: {late.size} of {len(self.edges)} dependencies were violated: task "
            f"{self.edges[late[0]][1] if late.size else 0} began before task "
            f"{self.edges[late[0]][0] if late.size else 0} had ended",
        )


def diamond() -> Graph:
    """Return a diamond: a task, two tasks that depend on it, and a task that depends on both."""
    return Graph("diamond", 4, [(0, 1), (0, 2), (1, 3), (2, 3)])


def chain(tasks: int) -> Graph:
    """Return a graph in which each task depends on the task before it."""
    return Graph(f"chain of {tasks}", tasks, [(i, i + 1) for i in range(tasks - 1)])


def independent(tasks: int) -> Graph:
    """Return a graph of tasks without edges."""
    return Graph(f"{tasks} independent tasks", tasks, [])


def hourglass(width: int) -> Graph:
    """Return a graph of one task, ``width`` tasks after it, and one task after all of them."""
    last = width + 1
    edges = [(0, i) for i in range(1, last)] + [(i, last) for i in range(1, last)]
    return Graph(f"fan-out and fan-in of {width}", width + 2, edges)


def random_graph(numbers: random.Random, tasks: int, fan_in: int = 4) -> Graph:
    """Return a random graph whose tasks have up to ``fan_in`` producers, mostly recent ones."""
    edges = []
    for task in range(1, tasks):
        count = numbers.randrange(fan_in + 1)
        reach = min(task, numbers.choice((3, 20, task)))
        earlier = {task - 1 - numbers.randrange(reach) for _ in range(count)}
        edges += [(producer, task) for producer in sorted(earlier)]
    return Graph(f"random graph of {tasks}", tasks, edges)
