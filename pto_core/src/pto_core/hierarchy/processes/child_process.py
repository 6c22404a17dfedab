"""One child, by its pidfd: a number that is never another process's."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass

from pto_core.hierarchy.processes.descriptors import close_parent_only, parent_only

_SLICE_S = 0.01
_REASONS = {
    "SIGSEGV": "an invalid memory access",
    "SIGBUS": "an invalid memory access",
    "SIGFPE": "an arithmetic error such as a division by zero",
    "SIGILL": "an invalid instruction",
    "SIGABRT": "abort()",
    "SIGKILL": "killed from outside, perhaps for lack of memory",
}


@dataclass(frozen=True)
class ChildEnding:
    """How a child ended: by ``signal``, or with ``exit_code``.

    Both are None when somebody else in this process waited for it first.
    """

    index: int
    path: str
    pid: int
    exit_code: int | None = None
    signal: int | None = None

    @property
    def in_words(self) -> str:
        """How it ended, to follow the name of the child."""
        if self.signal is not None:
            name = _signal_name(self.signal)
            reason = f" ({_REASONS[name]})" if name in _REASONS else ""
            return f"was ended by {name}{reason}"
        if self.exit_code is not None:
            return f"ended by itself with code {self.exit_code}"
        return "ended; how is not known, because something else in this process waited for it"


class ChildProcess:
    """A child of this process, running or not yet waited for.

    Only it is waited for, so children that the user started are left alone. Any thread may ask: the
    pidfd is open as long as ``ending`` is None, which changes once, under the lock.
    """

    def __init__(self, index: int, path: str, pid: int) -> None:
        self.index = index
        self.path = path
        self.pid = pid
        self.ending: ChildEnding | None = None
        self._lock = threading.RLock()  # an interrupt may ask again on the same thread
        self._to_close = -1
        try:
            self._pidfd = parent_only(os.pidfd_open(pid))
        except ProcessLookupError:  # somebody waited for it already
            self._pidfd = -1
            self.ending = ChildEnding(index, path, pid)

    @property
    def pidfd(self) -> int:
        """Readable when it has ended; -1 when that has been noticed."""
        return self._pidfd

    @property
    def is_alive(self) -> bool:
        """Whether it was when last asked."""
        return self.ending is None

    def poll(self) -> ChildEnding | None:
        """Say how it ended, None while it runs; never waits."""
        with self._lock:
            if self.ending is None:
                try:
                    status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
                except ChildProcessError:
                    self._finish_unseen()
                else:
                    if status is not None:
                        self._finish(status)
            ending, descriptor, self._to_close = self.ending, self._to_close, -1
        if descriptor >= 0:  # without the lock: who forks, or looks, holds the other one first
            close_parent_only(descriptor)
        return ending

    def wait(self, timeout_s: float) -> ChildEnding | None:
        """Wait for its end, so long at most."""
        if self.ending is None:
            wait_for_any([self], timeout_s)
        return self.poll()

    def await_end(self, timeout_s: float) -> None:
        """Wait for its end, so long at most, and leave it to :meth:`poll` to take it.

        Another thread may take it, and close the descriptor: so the wait is in slices.
        """
        deadline = time.monotonic() + timeout_s
        while self.is_alive and time.monotonic() < deadline:
            if wait_for_any([self], _SLICE_S):
                break

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self.ending is None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, number)

    def _finish_unseen(self) -> None:
        """Note an end that somebody else took; one that goes on is only no child of ours."""
        if wait_for_any([self], 0.0):
            self._close(ChildEnding(self.index, self.path, self.pid))

    def _finish(self, status: os.waitid_result) -> None:
        by_itself = status.si_code == os.CLD_EXITED
        self._close(
            ChildEnding(
                self.index,
                self.path,
                self.pid,
                exit_code=status.si_status if by_itself else None,
                signal=None if by_itself else status.si_status,
            )
        )

    def _close(self, ending: ChildEnding) -> None:
        self.ending = ending
        self._to_close, self._pidfd = self._pidfd, -1


def wait_for_any(children: list[ChildProcess], timeout_s: float, also: int = -1) -> bool:
    """Wait until one of them has ended, or ``also`` is readable, so long at most; says whether."""
    poller = select.poll()
    if also >= 0:
        poller.register(also, select.POLLIN)
    for child in children:
        pidfd = child.pidfd
        if pidfd < 0:
            return True
        poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(timeout_s, 0.0) * 1000))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
