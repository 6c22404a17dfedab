"""A child process with its pidfd, which cannot refer to another process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from pto_core.errors import PtoError
from pto_core.hierarchy.processes.child_exit import ChildExit
from pto_core.hierarchy.processes.descriptors import close_parent_only, parent_only

_SLICE_S = 0.01

ExitError = Callable[[ChildExit], PtoError]


class ChildProcess:
    """A child of this process that is running, or whose exit status was not collected yet.

    The methods do not affect other children of the program. Any thread may call them. The pidfd is
    open while ``exit`` is None; ``exit`` is set once, under the lock. ``exit_error`` is the
    function that creates the error for the exit.
    """

    def __init__(self, index: int, path: str, pid: int) -> None:
        self.index = index
        self.path = path
        self.pid = pid
        self.exit: ChildExit | None = None
        self.exit_error: ExitError = ChildExit.died_error
        # The lock is reentrant, because a signal handler may call a method on the same thread.
        self._lock = threading.RLock()
        self._to_close = -1
        try:
            self._pidfd = parent_only(os.pidfd_open(pid))
        except ProcessLookupError:  # other code in this process has collected the exit status
            self._pidfd = -1
            self.exit = ChildExit(index, path, pid)

    @property
    def pidfd(self) -> int:
        """A descriptor that is readable after the exit; -1 once :meth:`poll` has collected it."""
        return self._pidfd

    @property
    def is_alive(self) -> bool:
        """Whether :meth:`poll` has not yet collected the exit."""
        return self.exit is None

    def poll(self) -> ChildExit | None:
        """Return the exit, or None while the process is running; does not wait."""
        with self._lock:
            if self.exit is None:
                try:
                    status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
                except ChildProcessError:
                    self._finish_unseen()
                else:
                    if status is not None:
                        self._finish(status)
            taken, descriptor, self._to_close = self.exit, self._to_close, -1
        # outside of the lock, because other threads take the fork lock before this lock
        if descriptor >= 0:
            close_parent_only(descriptor)
        return taken

    def wait(self, timeout_s: float) -> ChildExit | None:
        """Wait up to ``timeout_s`` for the exit and return it; None if the process is running."""
        if self.exit is None:
            wait_for_any([self], timeout_s)
        return self.poll()

    def await_exit(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the exit, without collecting it.

        The wait consists of short slices, because another thread may collect the exit and close the
        pidfd.
        """
        deadline = time.monotonic() + timeout_s
        while self.is_alive and time.monotonic() < deadline:
            if wait_for_any([self], _SLICE_S):
                break

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self.exit is None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, number)

    def _finish_unseen(self) -> None:
        """Record an exit whose status was collected by other code in this process."""
        if wait_for_any([self], 0.0):
            self._close(ChildExit(self.index, self.path, self.pid))

    def _finish(self, status: os.waitid_result) -> None:
        by_itself = status.si_code == os.CLD_EXITED
        self._close(
            ChildExit(
                self.index,
                self.path,
                self.pid,
                exit_code=status.si_status if by_itself else None,
                signal=None if by_itself else status.si_status,
            )
        )

    def _close(self, ended: ChildExit) -> None:
        self.exit = ended
        self._to_close, self._pidfd = self._pidfd, -1


def wait_for_any(children: list[ChildProcess], timeout_s: float, also: int = -1) -> bool:
    """Wait up to ``timeout_s``; return whether a child has exited or ``also`` is readable."""
    poller = select.poll()
    if also >= 0:
        poller.register(also, select.POLLIN)
    for child in children:
        pidfd = child.pidfd
        if pidfd < 0:
            return True
        poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(timeout_s, 0.0) * 1000))
