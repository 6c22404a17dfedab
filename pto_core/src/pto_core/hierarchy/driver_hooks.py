"""The functions that the native driver calls: for exits, broken connections, and memory.

The driver calls these functions with the GIL, on the thread that waits for a task or on its own
thread.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from pto_core import log
from pto_core.errors import AbortedError, PtoError, UsageError, WorkerClosedError
from pto_core.hierarchy.event_loops import EventLoops
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.memory import WorkerMemory
from pto_core.hierarchy.placement import Placement
from pto_core.hierarchy.processes import ChildExit, fork_lock, refuse_inside
from pto_core.hierarchy.restarts import Children, Restarts
from pto_core.interrupts import Interrupts

_KILL_S = 5.0
_NAP_S = 0.002  # seconds between two checks whether a restart has ended
_PAUSE_NS = 50_000_000  # the interval in which the driver calls poll while it has work
_NONE = -1


class DrivenChildren(Children, Protocol):
    """The parts of a child group that the driver hooks use."""

    memory: WorkerMemory
    placement: Placement | None


class DriverHooks:
    """The hooks that the driver of a child group calls.

    The driver owns this object, which has only weak references to the driver and the group.
    ``paths``: the names of the children. ``event_loops``: the event loops that await tasks.
    """

    def __init__(self, group: DrivenChildren, paths: list[str], restarts: Restarts) -> None:
        self.paths = paths
        self.event_loops = EventLoops()
        self._restarts = restarts
        self._group: Callable[[], DrivenChildren | None] = weakref.ref(group)
        self._mappings = group.memory.own_mappings  # keeps the memory of the driver mapped
        self._begun_ns = 0

    # ---- called by the driver ----

    def poll(self) -> None:
        """Handle exits of children and finished restarts.

        Return at once if another thread has the fork lock: it may be waiting until the driver's
        thread is parked, and this may be the driver's thread. Raises WorkerClosedError if the
        Worker was deleted, because the wait would never end.
        """
        group, lock = self._group(), fork_lock()
        if group is None:
            raise WorkerClosedError(
                "the Worker of this task was deleted; keep a reference to it until you close it"
            )
        if not self._is_due(group):
            return
        try:
            refuse_inside()
        except UsageError:
            return  # this thread is inside the policy of another Worker and cannot fork
        with Interrupts():  # an exit must be handled completely; otherwise tasks wait forever
            if not lock.acquire(blocking=False):
                return
            try:
                if not self._restarts.is_stopped:
                    self._handle(group)
            finally:
                lock.release()

    def end_child(self, child: int, cause: int) -> None:
        """Kill a child because a task exceeded its time limit, or because it must exit at once."""
        group = self._group()
        if group is None:
            return
        driver = group.driver
        known = driver.cause(cause)
        if known is None or known["data"] or known["task"] == _NONE:
            self._kill(group, child, ChildExit.died_error)
            return
        task = driver.task(known["task"])
        if task is None or not _may_run_in(child, task):
            return  # the child has exited, and may have been replaced already
        process = group.processes[child]
        if process.exit is not None:  # it exited before the time limit; its fence is not over
            driver.explain(cause, Failure.of(process.exit_error(process.exit)).pack())
            return

        def hung_error(ended: ChildExit) -> PtoError:
            error = ended.hung_error(task["timeout_s"])
            driver.explain(cause, Failure.of(error).pack())
            return error

        self._kill(group, child, hung_error)

    def child_broken(self, child: int, message: str) -> None:
        """Kill a child whose connection broke."""
        group = self._group()
        if group is not None:
            self._kill(group, child, lambda ended: ended.broken_error(message))

    def grant(self, ring: int, nbytes: int) -> int:
        """Permit a heap ring to use its first ``nbytes`` bytes. Raises CapacityError."""
        group = self._group()
        assert group is not None
        return group.memory.grant(ring, nbytes)

    def turn_is_late(self, owner: int) -> None:
        """Log that a thread has waited long for the run of the thread ``owner``."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == owner]
        log.get(__name__).warning(
            "run waits for the run of another thread",
            thread=threading.current_thread().name,
            owner=names[0] if names else "ended",
            advice="a graph function or the block of a session must not wait for another run",
        )

    # ---- called by the Worker ----

    def begin_run(self) -> None:
        """Detect children that have exited since the end of the last run.

        Without this check, a task of the new run could be sent to an exited child and fail. The
        check takes a considerable part of a short run, so it is omitted if the last run began less
        than 50 ms ago.
        """
        now = time.monotonic_ns()
        if now - self._begun_ns >= _PAUSE_NS:
            self.poll()
        self._begun_ns = now
        if self._restarts.pending:
            self._restarts.begin_run()

    def await_restart(self, child: int) -> None:
        """Wait until the restart of a child has ended, if one is in progress."""
        self.poll()
        while self._restarts.is_restarting(child):
            time.sleep(_NAP_S)
            self.poll()

    def _is_due(self, group: DrivenChildren) -> bool:
        """Return whether an exit or a restart must be handled. Takes no lock."""
        is_failed = group.placement is not None and group.placement.is_cancel_due
        return is_failed or bool(self._restarts.pending) or group.processes.have_exited()

    def _handle(self, group: DrivenChildren) -> None:
        if group.placement is not None and group.placement.is_cancel_due:
            group.placement.is_cancel_due = False
            error = AbortedError("the placement policy failed; the run was cancelled")
            group.driver.cancel(group.driver.add_cause(Failure.of(error).pack()))
        # an error for one child must not prevent the handling of the others
        with ExitStack() as steps:
            for ended in reversed(group.processes.poll()):
                steps.callback(self._restarts.lose, group, ended)
        self._restarts.advance(group)

    def _kill(
        self, group: DrivenChildren, child: int, exit_error: Callable[[ChildExit], PtoError]
    ) -> None:
        process = group.processes[child]
        if process.is_alive:
            process.exit_error = exit_error
            process.kill()
            process.await_exit(_KILL_S)
        self.poll()


def _may_run_in(child: int, task: dict[str, Any]) -> bool:
    """Return whether the task has not ended and may be running in the child."""
    is_sent = task["members"] > 1 or task["child"] == child
    return bool(task["result"] == _NONE and is_sent)
