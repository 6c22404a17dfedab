"""The open scopes. Each scope keeps its tasks alive until it ends."""

from __future__ import annotations

from pto_devkit.engine.configuration import RINGS


class Scopes:
    """``open[d]`` lists the tasks of the open scope at depth d; ``open[0]`` belongs to the run."""

    def __init__(self) -> None:
        self.open: list[list[int]] = []

    @property
    def depth(self) -> int:
        """The depth of the innermost scope."""
        return len(self.open) - 1

    @property
    def ring(self) -> int:
        """The number of the heap ring that the innermost scope uses."""
        return min(self.depth, RINGS - 1)

    def begin(self) -> None:
        """Open a scope inside the innermost open scope."""
        self.open.append([])

    def enter(self, task: int) -> None:
        """Add the task to the innermost scope, which keeps the task alive."""
        self.open[-1].append(task)

    def end(self) -> list[int]:
        """Close the innermost scope and return its tasks."""
        return self.open.pop()

    def depth_of(self, task: int) -> int | None:
        """Return the depth of the open scope that keeps the task alive."""
        for depth, tasks in enumerate(self.open):
            if task in tasks:
                return depth
        return None
