"""The fence of a child delays the report of its loss while its work continues elsewhere.

The process of a relay may exit while tasks that it passed on are still running on the other host.
The loss of a child with a fence is reported to the engine only when the fence is over. Until then,
no task of the child runs again, and the child is not restarted.
"""

from __future__ import annotations

from typing import Protocol

from pto_core.hierarchy.processes import ChildExit


class Fence(Protocol):
    """Reports when no work of an exited child continues.

    Only the thread that owns the fork lock calls it. No call may wait. An exception of
    :meth:`begin` is raised to the run. An exception of :meth:`is_over` is reported as the loss of
    the child, which is not restarted.
    """

    def begin(self, ended: ChildExit) -> None:
        """Start the fence, because the child's process has exited. Called once for each exit."""

    def is_over(self) -> bool:
        """Return whether no work of the child continues; called every 50 ms until it is true.

        The fence has its own time limit, after which this method returns true in any case.
        """
