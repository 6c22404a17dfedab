"""The queues of tasks to send. Each queue is in the order in which tasks entered it.

Invariants: a task is in ``singles`` or ``groups`` if and only if it is READY. A task in ``early``
is PENDING, waits for one producer, which is RUNNING, and may be sent before that producer ends.
"""

from __future__ import annotations


class Queues:
    """All tasks of the queue."""

    def __init__(self) -> None:
        self.singles: list[int] = []
        self.groups: list[int] = []
        self.early: list[int] = []
        """Tasks that may be sent early; their frames have a requirement."""
        self.groups_in_a_row = 0
        """The number of groups sent since the last single task, while a single task waited."""

    def add(self, task: int, *, is_group: bool) -> None:
        """Add a task that is READY now."""
        (self.groups if is_group else self.singles).append(task)

    def remove(self, task: int) -> None:
        """Remove a task, because its state or the state of its producer changes."""
        for queue in (self.singles, self.groups, self.early):
            if task in queue:
                queue.remove(task)
