"""A child process with its pidfd, which cannot refer to another process; its exit and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pto_core.errors import ChildDiedError, ChildHungError, PtoError
from pto_core.hierarchy.processes.parking import close_parent_only, parent_only
from pto_core.interrupts import Interrupts

_REASONS = {
    "SIGSEGV": "an invalid memory access",
    "SIGBUS": "an invalid memory access",
    "SIGFPE": "an arithmetic error such as a division by zero",
    "SIGILL": "an invalid instruction",
    "SIGABRT": "abort()",
    "SIGKILL": "killed from outside, perhaps for lack of memory",
}


@dataclass(frozen=True)
class ChildExit:
    """The exit of a child, either by ``signal`` or with ``exit_code``.

    Both are None if other code in this process has collected the exit status.
    """

    index: int
    path: str
    pid: int
    exit_code: int | None = None
    signal: int | None = None

    @property
    def description(self) -> str:
        """The verb phrase of a sentence about the child, such as ``was killed by SIGKILL``."""
        if self.signal is not None:
            name = _signal_name(self.signal)
            reason = f" ({_REASONS[name]})" if name in _REASONS else ""
            return f"was ended by {name}{reason}"
        if self.exit_code is not None:
            return f"ended by itself with code {self.exit_code}"
        return "ended; its exit code is unknown, because other code in this process collected it"

    def died_error(self) -> ChildDiedError:
        """Return the error for a child whose process has ended."""
        return self._error(f"process {self.pid} {self.description}")

    def broken_error(self, message: str) -> ChildDiedError:
        """Return the error for a child that was killed because its connection broke."""
        # the child exited first, and its exit broke the connection
        if self.signal != signal.SIGKILL:
            return self.died_error()
        return self._error(f"process {self.pid} was ended because its connection broke: {message}")

    def hung_error(self, timeout_s: float | None) -> ChildHungError:
        """Return the error for a child that was killed because a task exceeded its time limit."""
        limit = "its time limit" if timeout_s is None else f"its time limit of {timeout_s:g} s"
        return ChildHungError(
            f"{self.path}: a task did not end within {limit}, so process {self.pid} was ended",
            child=self.index,
            path=self.path,
            pid=self.pid,
            signal=self.signal,
            timeout_s=timeout_s,
        )

    def _error(self, event: str) -> ChildDiedError:
        return ChildDiedError(
            f"{self.path}: {event}",
            child=self.index,
            path=self.path,
            pid=self.pid,
            signal=self.signal,
            exit_code=self.exit_code,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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


_TERM_GRACE_S = 1.0
_KILL_GRACE_S = 5.0  # seconds; a system call that cannot be interrupted may delay an exit


def end_all(children: Iterable[ChildProcess], grace_s: float, interrupts: Interrupts) -> None:
    """Wait for children that were asked to close; after ``grace_s``, end the remaining ones.

    The remaining children receive SIGTERM, then SIGKILL. A signal to this process ends the first
    wait.
    """
    left = wait_for_all(children, grace_s, interrupts)
    for child in left:
        child.terminate()
    left = wait_for_all(left, _TERM_GRACE_S)
    kill_all(left)


def kill_all(children: Iterable[ChildProcess]) -> None:
    """Kill children and wait until they have exited."""
    left = [child for child in children if child.poll() is None]
    for child in left:
        child.kill()
    wait_for_all(left, _KILL_GRACE_S)


def wait_for_all(
    children: Iterable[ChildProcess], timeout_s: float, interrupts: Interrupts | None = None
) -> list[ChildProcess]:
    """Wait up to ``timeout_s`` until all children have exited; return those that are running."""
    deadline = time.monotonic() + timeout_s
    also = -1 if interrupts is None else interrupts.descriptor
    while left := [child for child in children if child.poll() is None]:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or (interrupts is not None and interrupts.signal is not None):
            break
        wait_for_any(left, remaining, also)
    return left
