"""A child process from its start to its exit, in its parent.

The parent reads the reports of the start through a pipe. It waits for and signals the process
through its pidfd, which cannot refer to another process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pto_core.errors import (
    AbortedError,
    ChildDiedError,
    ChildHungError,
    ChildStartError,
)
from pto_core.errors.limits import reached_limit
from pto_core.errors.values import signal_text
from pto_core.interrupts import Interrupts
from pto_core.worker.failures import Failure
from pto_core.worker.processes.parking import close_parent_only, parent_only


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
            return f"was ended by {signal_text(self.signal)}"
        if self.exit_code is not None:
            return f"ended by itself with code {self.exit_code}"
        return "ended; its exit code is unknown, because other code in this process collected it"

    def died_error(self) -> ChildDiedError:
        """Return the error for a child whose process has ended."""
        return self.error(f"process {self.pid} {self.description}")

    def broken_error(self, message: str) -> ChildDiedError:
        """Return the error for a child that was killed because its connection broke."""
        # the child exited first, and its exit broke the connection
        if self.signal != signal.SIGKILL:
            return self.died_error()
        return self.error(f"process {self.pid} was ended because its connection broke: {message}")

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

    def error(self, event: str) -> ChildDiedError:
        """Return the error for the loss of the child by an event."""
        return ChildDiedError(
            f"{self.path}: {event}",
            child=self.index,
            path=self.path,
            pid=self.pid,
            signal=self.signal,
            exit_code=self.exit_code,
        )


class AddressTakenError(OSError):
    """The address of a mapping is in use in the new process. Another attempt may succeed."""


LENGTH = struct.Struct("<Q")
"""The length that precedes each report in the pipe."""
_READ_BYTES = 1 << 16
_SLICE_S = 0.01
_START_SLICE_S = 0.05  # seconds between two checks whether the start was cancelled

ExitError = Callable[[ChildExit], Exception]


class ChildProcess:
    """A child of this process that is running, or whose exit status was not collected yet.

    The methods do not affect other children of the program. Any thread may call the methods that do
    not concern the start. The pidfd is open while ``exit`` is None; ``exit`` is set once, under the
    lock. ``exit_error`` is the function that creates the error for the exit.

    ``reports``: the read end of the pipe while the process starts, otherwise -1. ``doing``: the
    last step of the start. ``value``: the value that the child passed to ``ready``. ``failure``:
    why the start failed, if another attempt may succeed.
    """

    def __init__(self, index: int, path: str, pid: int, reports: int = -1) -> None:
        self.index = index
        self.path = path
        self.pid = pid
        self.exit: ChildExit | None = None
        self.exit_error: ExitError = ChildExit.died_error
        # The lock is reentrant, because a signal handler may call a method on the same thread.
        self._lock = threading.RLock()
        self._to_close = -1
        self.reports = reports
        self.has_reported_all = False  # whether the child has closed the pipe
        self.doing = "starting"
        self.is_ready = False
        self.value: Any = None
        self.failure: ChildStartError | None = None
        self.begun = time.monotonic()
        self._received = bytearray()
        if reports >= 0:
            os.set_blocking(reports, False)
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

    def suspend(self) -> None:
        """Stop the process until :meth:`resume`, and wait until it has stopped or exited."""
        self._send(signal.SIGSTOP)
        with self._lock, contextlib.suppress(ChildProcessError):
            if self.exit is None:
                os.waitid(os.P_PIDFD, self._pidfd, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let the process continue after :meth:`suspend`."""
        self._send(signal.SIGCONT)

    # ---- the start ----

    @property
    def is_over(self) -> bool:
        """Whether the start has ended: the child is ready or has failed."""
        return self.is_ready or self.failure is not None

    def close_reports(self) -> None:
        """Close the pipe; a second call does nothing."""
        descriptor, self.reports = self.reports, -1
        if descriptor >= 0:
            close_parent_only(descriptor)

    def take_reports(self) -> None:
        """Read the reports of the child. Raises ChildStartError if the child could not start."""
        for kind, value in self._read_reports():
            if kind == "doing":
                self.doing = value
            elif kind == "ready":
                self.is_ready, self.value = True, value
            else:
                error = _start_failed(self, Failure.unpack(value))
                if not isinstance(error.__cause__, AddressTakenError):
                    raise error
                self.failure = error
        if self.is_ready:
            self.close_reports()

    def check_end(self) -> None:
        """Raise ChildStartError if the child exited before it was ready."""
        ended = self.poll()
        if ended is not None:
            self.take_reports()
            if not self.is_over:
                raise self._unready(ended)

    def check_start(self, timeout_s: float) -> None:
        """Read the reports of the child and check whether it has exited, without waiting.

        An exit sets ``failure``. Raises ChildStartError if the child reported an error, or if it is
        not ready after ``timeout_s``.
        """
        ended = self.poll()
        self.take_reports()
        if self.failure is None and ended is not None:
            self.is_ready, self.failure = False, self._unready(ended)
        if not self.is_over and time.monotonic() >= self.begun + timeout_s:
            raise _too_slow([self], timeout_s)

    def _read_reports(self) -> list[tuple[str, Any]]:
        """Return the complete reports. Raises the exceptions of unpickling."""
        while self.reports >= 0 and not self.has_reported_all:
            try:
                content = os.read(self.reports, _READ_BYTES)
            except BlockingIOError:
                break
            self.has_reported_all = not content
            self._received += content
        found = []
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                break
            found.append(pickle.loads(self._received[LENGTH.size : end]))
            del self._received[:end]
        return found

    def _unready(self, ended: ChildExit) -> ChildStartError:
        return start_error(self, f"{ended.description} while {self.doing}, before it was ready")

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


def await_ready(
    started: Sequence[ChildProcess],
    timeout_s: float,
    interrupts: Interrupts,
    is_cancelled: Callable[[], bool],
) -> list[ChildProcess]:
    """Wait until all children are ready; return those that failed but may be started again.

    Raises ChildStartError if a child cannot start, exits, or is not ready ``timeout_s`` after its
    start. Raises AbortedError after a signal, and shortly after ``is_cancelled()`` becomes true.
    """
    waiting = list(started)
    poller = select.poll()
    if interrupts.descriptor >= 0:
        poller.register(interrupts.descriptor, select.POLLIN)
    by_descriptor = {}
    for child in waiting:
        for descriptor in (child.reports, child.pidfd):
            by_descriptor[descriptor] = child
            poller.register(descriptor, select.POLLIN)
    while waiting:
        if interrupts.signal is not None:
            raise AbortedError("interrupted while children were started; all of them were ended")
        check_not_cancelled(is_cancelled)
        deadline = min(child.begun for child in waiting) + timeout_s
        left = deadline - time.monotonic()
        if left <= 0:
            raise _too_slow(waiting, timeout_s)
        for descriptor, _ in poller.poll(min(left, _START_SLICE_S) * 1000):
            found = by_descriptor.get(descriptor)
            if found is not None and not found.is_over:
                _follow(found, descriptor, poller)
        waiting = [child for child in waiting if not child.is_over]
    return [child for child in started if child.failure is not None]


def _follow(child: ChildProcess, descriptor: int, poller: select.poll) -> None:
    pipe, pidfd = child.reports, child.pidfd
    child.take_reports()
    if child.is_over:
        poller.unregister(pipe)
        poller.unregister(pidfd)
        return
    if child.has_reported_all and descriptor == pipe:
        poller.unregister(pipe)  # the child has closed its pipe; its exit is detected by its pidfd
    child.check_end()


def check_not_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """Raise AbortedError if the start of the children was cancelled."""
    if is_cancelled():
        raise AbortedError("the start of children was cancelled; all of them were ended")


def start_error(process: ChildProcess, what: str, **fields: Any) -> ChildStartError:
    """Return the error for a child that did not become ready."""
    return ChildStartError(
        f"{process.path}: process {process.pid} {what}",
        child=process.index,
        path=process.path,
        pid=process.pid,
        **fields,
    )


def _start_failed(process: ChildProcess, failure: Failure) -> ChildStartError:
    """Return the error for an exception in a child.

    The error of a nested child is unchanged, and so is that of the same child on another host.
    """
    cause = failure.exception
    if isinstance(cause, ChildStartError) and f"{cause.path}/".startswith(f"{process.path}/"):
        return cause
    what = f"could not start: {failure.type_name}: {failure.message}"
    limit = reached_limit(cause.errno) if isinstance(cause, OSError) else None
    error = start_error(
        process,
        what if limit is None else f"{what}; {limit.advice}",
        remote_traceback=failure.traceback,
    )
    error.__cause__ = cause
    return error


def _too_slow(waiting: Sequence[ChildProcess], timeout_s: float) -> ChildStartError:
    late = min(waiting, key=lambda one: one.begun)
    others = f"; {len(waiting) - 1} more are not ready either" if len(waiting) > 1 else ""
    return start_error(
        late,
        f"was not ready after {timeout_s:g} s: it was {late.doing}{others}; find out what it "
        "waits for, or raise child_start_timeout_s",
    )
