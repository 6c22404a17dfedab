"""The queues of tasks to send, each in the order in which tasks entered it.

Invariants: a task is in ``singles`` or ``groups`` exactly while it is READY; a task in ``early`` is
PENDING, waits for one producer, which is RUNNING, and may be sent after it.
"""

from __future__ import annotations


class Queues:
    """All tasks of the queue."""

    def __init__(self) -> None:
        self.singles: list[int] = []
        self.groups: list[int] = []
        self.early: list[int] = []
        """Tasks to send early, with a requirement."""
        self.groups_in_a_row = 0
        """Groups sent since the last single task, while one waited."""

    def add(self, task: int, *, is_group: bool) -> None:
        """Add a task that is READY now."""
        (self.groups if is_group else self.singles).append(task)

    def remove(self, task: int) -> None:
        """Remove a task that changes its state, or its producer."""
        for queue in (self.singles, self.groups, self.early):
            if task in queue:
                queue.remove(task)
