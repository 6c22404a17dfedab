"""The fence of a child: work that continues after the exit of its process.

The process of a relay may exit while tasks that it passed on still run on the other host. The loss
of a child with a fence is reported to the engine only when the fence is over. Until then no task of
the child runs again, and the child is not restarted.
"""

from __future__ import annotations

from typing import Protocol

from pto_core.hierarchy.processes import ChildExit


class Fence(Protocol):
    """Reports when no work of an exited child continues.

    The thread that owns the fork lock calls it, one thread at a time. No call waits. An exception
    is raised to the program: by :meth:`begin` to the run, and by :meth:`is_over` as the loss of the
    child, which is not restarted.
    """

    def begin(self, ended: ChildExit) -> None:
        """Start the fence: the process of the child has exited. Called once for each exit."""

    def is_over(self) -> bool:
        """Return whether no work of the child continues; called every 50 ms until it is True.

        The fence has its own time limit: it is over at the latest when its limit has passed.
        """
