"""Wait until started children are ready; raise the errors of children that cannot start."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pto_core.errors import AbortedError, ChildStartError
from pto_core.errors.limits import reached_limit
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes.child_exit import ChildExit
from pto_core.hierarchy.processes.child_process import ChildProcess
from pto_core.hierarchy.processes.descriptors import close_parent_only
from pto_core.hierarchy.processes.reports import ReportReader
from pto_core.hierarchy.processes.spawning import AddressTakenError
from pto_core.interrupts import Interrupts

_SLICE_S = 0.05  # seconds between two checks whether the start was cancelled


@dataclass
class Starting:
    """A child that is starting. If ``failure`` is set, it failed but may be started again."""

    process: ChildProcess
    reports: ReportReader
    doing: str = "starting"
    is_ready: bool = False
    value: Any = None
    failure: ChildStartError | None = None
    begun: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Close the pipe; a second call does nothing."""
        if self.reports.descriptor >= 0:
            close_parent_only(self.reports.descriptor)
            self.reports.descriptor = -1

    def take_reports(self) -> None:
        """Read the reports of the child. Raises ChildStartError if the child could not start."""
        for kind, value in self.reports.read():
            if kind == "doing":
                self.doing = value
            elif kind == "failed":
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
        """Whether the child is ready or has failed."""
        return self.is_ready or self.failure is not None

    def check_end(self) -> None:
        """Raise ChildStartError if the child exited before it was ready."""
        ended = self.process.poll()
        if ended is None:
            return
        self.take_reports()
        if not self.is_over:
            raise self._ended(ended)

    def check(self, timeout_s: float) -> None:
        """Read the reports of the child and check whether it has exited, without waiting.

        An exit sets ``failure``. Raises ChildStartError if the child reported an error, or if it is
        not ready after ``timeout_s``.
        """
        ended = self.process.poll()
        self.take_reports()
        if self.failure is None and ended is not None:
            self.is_ready, self.failure = False, self._ended(ended)
        if not self.is_over and time.monotonic() >= self.begun + timeout_s:
            raise _too_slow([self], timeout_s)

    def _ended(self, ended: ChildExit) -> ChildStartError:
        return start_error(
            self.process, f"{ended.description} while {self.doing}, before it was ready"
        )


def await_ready(
    started: Sequence[Starting],
    timeout_s: float,
    interrupts: Interrupts,
    is_cancelled: Callable[[], bool],
) -> list[Starting]:
    """Wait until all children are ready; return those that failed but may be started again.

    Raises ChildStartError if a child cannot start, exits, or is not ready ``timeout_s`` after its
    start. Raises AbortedError after a signal, and shortly after ``is_cancelled()`` becomes true.
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
            raise AbortedError("interrupted while children were started; all of them were ended")
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
    """Raise AbortedError if the start of the children was cancelled."""
    if is_cancelled():
        raise AbortedError("the start of children was cancelled; all of them were ended")


def _follow(one: Starting, descriptor: int, poller: select.poll) -> None:
    pipe, pidfd = one.reports.descriptor, one.process.pidfd
    one.take_reports()
    if one.is_over:
        poller.unregister(pipe)
        poller.unregister(pidfd)
        return
    if not one.reports.is_open and descriptor == pipe:
        poller.unregister(pipe)  # the child has closed its pipe; its exit is detected by its pidfd
    one.check_end()


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


def _too_slow(waiting: Sequence[Starting], timeout_s: float) -> ChildStartError:
    late = min(waiting, key=lambda one: one.begun)
    others = f"; {len(waiting) - 1} more are not ready either" if len(waiting) > 1 else ""
    return start_error(
        late.process,
        f"was not ready after {timeout_s:g} s: it was {late.doing}{others}; find out what it "
        "waits for, or raise child_start_timeout_s",
    )
