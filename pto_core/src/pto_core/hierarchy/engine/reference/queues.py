"""What waits to be sent, each queue in the order in which tasks came into it.

Invariants: a task is in ``singles`` or ``groups`` exactly while it is READY; whatever is in
``early`` is PENDING, waits for one producer, which is RUNNING, and may be sent after it.
"""

from __future__ import annotations


class Queues:
    """All of them."""

    def __init__(self) -> None:
        self.singles: list[int] = []
        self.groups: list[int] = []
        self.early: list[int] = []
        """To be sent with a requirement."""
        self.groups_in_a_row = 0
        """Sent since the last single task, while one waited."""

    def add(self, task: int, *, is_group: bool) -> None:
        """Append a task that is READY now."""
        (self.groups if is_group else self.singles).append(task)

    def remove(self, task: int) -> None:
        """Take out a task that changes its state, or what it waits for."""
        for queue in (self.singles, self.groups, self.early):
            if task in queue:
                queue.remove(task)
