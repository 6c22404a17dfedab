"""Seeing that children become ready, all at once or one by one, and why one never will be."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pto_core.errors import AbortedError, ChildStartError
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes.child_process import ChildEnding, ChildProcess
from pto_core.hierarchy.processes.descriptors import close_parent_only
from pto_core.hierarchy.processes.reports import ReportReader
from pto_core.hierarchy.processes.spawning import AddressTakenError
from pto_core.interrupts import Interrupts

_SLICE_S = 0.05  # until the next look whether the start was cancelled


@dataclass
class Starting:
    """A child whose start is not over."""

    process: ChildProcess
    reports: ReportReader
    doing: str = "starting"
    is_ready: bool = False
    value: Any = None
    failure: ChildStartError | None = None  # another try may do
    begun: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Let go of the pipe; twice is fine."""
        if self.reports.descriptor >= 0:
            close_parent_only(self.reports.descriptor)
            self.reports.descriptor = -1

    def take_reports(self) -> None:
        """Take what the child told; raises ChildStartError when it never will be ready."""
        for word, value in self.reports.read():
            if word == "doing":
                self.doing = value
            elif word == "failed":
                self._fail(Failure.unpack(value))
            else:
                self.is_ready, self.value = True, value
        if self.is_ready:
            self.close()

    def _fail(self, failure: Failure) -> None:
        error = _start_failed(self.process, failure)
        if not isinstance(error.__cause__, AddressTakenError):
            raise error
        self.failure = error

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.is_ready or self.failure is not None

    def check_end(self) -> None:
        """Raise ChildStartError when the child is gone before it was ready."""
        ending = self.process.poll()
        if ending is None:
            return
        self.take_reports()
        if not self.is_over:
            raise self._ended(ending)

    def look(self, timeout_s: float) -> None:
        """See how far it is, without waiting, and whether it is still there.

        One that has ended and said nothing has a ``failure``, for another one may come further.
        Raises ChildStartError when it failed, or is not ready after ``timeout_s``.
        """
        ending = self.process.poll()
        self.take_reports()
        if self.failure is None and ending is not None:
            self.is_ready, self.failure = False, self._ended(ending)
        if not self.is_over and time.monotonic() >= self.begun + timeout_s:
            raise _too_slow([self], timeout_s)

    def _ended(self, ending: ChildEnding) -> ChildStartError:
        return start_error(
            self.process, f"{ending.in_words} while {self.doing}, before it was ready"
        )


def await_ready(
    started: Sequence[Starting],
    timeout_s: float,
    interrupts: Interrupts,
    is_cancelled: Callable[[], bool],
) -> list[Starting]:
    """Return when all are ready, but for those that it gives: they are worth another try.

    Raises ChildStartError for the first that fails, dies, or is not ready ``timeout_s`` after it
    was started; AbortedError when a signal was noted, and soon after ``is_cancelled()`` is true.
    """
    waiting = list(started)
    poller = select.poll()
    if interrupts.descriptor >= 0:
        poller.register(interrupts.descriptor, select.POLLIN)
    by_descriptor = {}
    for one in waiting:
        by_descriptor[one.reports.descriptor] = by_descriptor[one.process.pidfd] = one
        poller.register(one.reports.descriptor, select.POLLIN)
        poller.register(one.process.pidfd, select.POLLIN)
    while waiting:
        if interrupts.signal is not None:
            raise AbortedError("interrupted while children were started; none is left")
        check_not_cancelled(is_cancelled)
        deadline = min(one.begun for one in waiting) + timeout_s
        left = deadline - time.monotonic()
        if left <= 0:
            raise _too_slow(waiting, timeout_s)
        for descriptor, _ in poller.poll(min(left, _SLICE_S) * 1000):
            found = by_descriptor.get(descriptor)
            if found is not None and not found.is_over:
                _follow(found, descriptor, poller)
        waiting = [one for one in waiting if not one.is_over]
    return [one for one in started if one.failure is not None]


def check_not_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """Raise AbortedError where the start of children was cancelled."""
    if is_cancelled():
        raise AbortedError("the start of children was cancelled; none is left")


def _follow(one: Starting, descriptor: int, poller: select.poll) -> None:
    pipe, pidfd = one.reports.descriptor, one.process.pidfd
    one.take_reports()
    if one.is_over:
        poller.unregister(pipe)
        poller.unregister(pidfd)
        return
    if not one.reports.is_open and descriptor == pipe:
        poller.unregister(pipe)  # its end follows
    one.check_end()


def start_error(process: ChildProcess, what: str, **fields: Any) -> ChildStartError:
    """Say what happened to a child that is not ready."""
    return ChildStartError(
        f"{process.path}: process {process.pid} {what}",
        child=process.index,
        path=process.path,
        pid=process.pid,
        **fields,
    )


def _start_failed(process: ChildProcess, failure: Failure) -> ChildStartError:
    """Turn what a child raised into an error; one of a child of its own stays what it was."""
    cause = failure.exception
    if isinstance(cause, ChildStartError) and str(cause.path).startswith(f"{process.path}/"):
        return cause
    error = start_error(
        process,
        f"could not start: {failure.type_name}: {failure.message}",
        remote_traceback=failure.traceback,
    )
    error.__cause__ = cause
    return error


def _too_slow(waiting: Sequence[Starting], timeout_s: float) -> ChildStartError:
    late = min(waiting, key=lambda one: one.begun)
    others = f"; {len(waiting) - 1} more are not ready either" if len(waiting) > 1 else ""
    return start_error(
        late.process,
        f"was not ready after {timeout_s:g} s: it was {late.doing}{others}; look for what it waits "
        "for, or raise child_start_timeout_s",
    )
