"""What waits to be sent, each queue in the order in which tasks came into it."""

from __future__ import annotations


class Queues:
    """Invariant: a task is in ``singles`` or ``groups`` exactly while it is READY."""

    def __init__(self) -> None:
        self.singles: list[int] = []
        self.groups: list[int] = []
        self.early: list[int] = []
        """May be sent with a requirement; looked at again when its turn comes."""
        self.groups_in_a_row = 0
        """Sent since the last single task, while one waited."""

    def add(self, task: int, *, is_group: bool) -> None:
        """Append a task that is READY now."""
        (self.groups if is_group else self.singles).append(task)

    def remove(self, task: int) -> None:
        """Take out a task that is not READY any more, if it was."""
        for queue in (self.singles, self.groups):
            if task in queue:
                queue.remove(task)

    def add_early(self, task: int) -> None:
        """Append a task that may be sent early, unless it is there."""
        if task not in self.early:
            self.early.append(task)
