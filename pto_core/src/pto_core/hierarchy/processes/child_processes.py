"""The child processes of one Worker."""

from __future__ import annotations

import errno
import os
import resource
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pto_core.errors import CapacityError, UsageError
from pto_core.hierarchy.processes.awaiting import Starting, await_ready, check_not_cancelled
from pto_core.hierarchy.processes.child_process import ChildEnding, ChildProcess, wait_for_any
from pto_core.hierarchy.processes.descriptors import close_parent_only, parent_only
from pto_core.hierarchy.processes.ending import end_all, kill_all
from pto_core.hierarchy.processes.forking import fork_child
from pto_core.hierarchy.processes.plan import ChildPlan
from pto_core.hierarchy.processes.reports import ReportReader
from pto_core.hierarchy.processes.spawning import pickled_body, spawn_child
from pto_core.interrupts import Interrupts

_Wanted = dict[int, tuple[ChildPlan, bytes]]

START_METHODS = ("fork", "spawn")
_SPAWN_TRIES = 3


@dataclass
class _Family:
    """What has to be ended though nobody does."""

    owner: int  # the process that it belongs to; one that is forked from it has only a copy
    processes: list[ChildProcess] = field(default_factory=list)
    starting: dict[int, Starting] = field(default_factory=dict)  # of those, begun one by one
    parent: int = -1  # a pidfd of the owner, while there are children

    def open(self) -> None:
        """Make ready for the first child."""
        if self.parent < 0:
            self.parent = parent_only(os.pidfd_open(self.owner))

    def end(self) -> None:
        """End all at once."""
        if os.getpid() == self.owner:
            kill_all(self.processes)
            self.forget()

    def forget(self) -> None:
        """Let go of what has ended."""
        self.processes.clear()
        while self.starting:
            self.starting.popitem()[1].close()
        if self.parent >= 0:
            descriptor, self.parent = self.parent, -1
            close_parent_only(descriptor)


class ChildProcesses:
    """Starts, watches and ends the children of one Worker, which never outlive this process.

    Used by one thread at a time. Children that nobody ended are ended when this object goes, or the
    interpreter does. In a forked process all of it is empty: the children are its siblings.
    """

    def __init__(self, start_method: str = "fork", timeout_s: float = 60.0) -> None:
        if start_method not in START_METHODS:
            raise UsageError(
                f"start_method is {start_method!r}; give 'fork' or 'spawn'",
                name="start_method",
                value=start_method,
                expected="fork or spawn",
            )
        self._start_method = start_method
        self._timeout_s = timeout_s
        self._family = _Family(os.getpid())
        self._finalizer = self._when_gone()

    def __len__(self) -> int:
        return len(self._family.processes)

    def __getitem__(self, index: int) -> ChildProcess:
        return self._family.processes[index]

    def __iter__(self) -> Iterator[ChildProcess]:
        return iter(self._family.processes)

    def start(
        self, plans: Sequence[ChildPlan], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[Any]:
        """Start a child for each plan; gives what each passed to ``ready``.

        All are started before the first is waited for. Raises ChildStartError, which names the
        child; CapacityError when the system has no room for another process; UsageError for a plan
        that cannot be given to a new process; what a signal's handler raises (KeyboardInterrupt);
        AbortedError soon after ``is_cancelled()`` is true. After an error no child is left.
        """
        bodies = self._bodies(plans)
        if not self._finalizer.alive:
            self._finalizer = self._when_gone()
        self._family.open()
        try:
            with Interrupts() as interrupts:
                values = self._start_ready(
                    dict(enumerate(zip(plans, bodies, strict=True))), interrupts, is_cancelled
                )
        except BaseException:
            with Interrupts():
                self.kill_all()
            raise
        return values

    def begin(self, index: int, plan: ChildPlan) -> None:
        """Start a child in the place of one that is gone, or is ended now; :meth:`look` follows.

        Raises as :meth:`start`, of which it has the part that waits for nobody; then there is none
        at ``index``, and the others go on.
        """
        body = self._bodies([plan])[0]
        self.give_up(index)
        with Interrupts():
            self._family.starting[index] = self._start_one(index, plan, body)

    def look(self, index: int) -> Starting:
        """See how far a child is that :meth:`begin` started; never waits.

        Once it is ready it is a child like the others, and :meth:`poll` tells its end. Where it has
        a ``failure`` it is gone, and another one may come further. Raises ChildStartError for one
        that failed, or took too long: it is gone, too.
        """
        start = self._family.starting[index]
        try:
            start.look(self._timeout_s)
        except BaseException:
            self.give_up(index)
            raise
        if start.is_ready:
            del self._family.starting[index]
        elif start.failure is not None:
            self.give_up(index)
        return start

    def give_up(self, index: int) -> None:
        """End a child, however far it is, and leave its place empty."""
        kill_all([self._family.processes[index]])
        start = self._family.starting.pop(index, None)
        if start is not None:
            start.close()

    def have_ended(self) -> bool:
        """Whether :meth:`poll` has some to give; takes none, and never waits."""
        alive = [child for child in self._family.processes if child.is_alive]
        return bool(alive) and wait_for_any(alive, 0)

    def poll(self) -> list[ChildEnding]:
        """Give the children that have ended since the last call, once; never waits."""
        return [
            ending
            for child in self._family.processes
            if child.is_alive and (ending := child.poll()) is not None
        ]

    def end(self, grace_s: float = 2.0, *, forgets: bool = True) -> None:
        """Wait for children that were told to close; those left after ``grace_s`` are ended.

        Those whose start is not over are ended at once. Twice is fine. A signal (Ctrl-C) does not
        cut it short but to the wait: it takes its course when all children are gone. With
        ``forgets`` false other threads may still ask for them, and start one anew, until
        :meth:`kill_all`.
        """
        with Interrupts() as interrupts:
            for index in list(self._family.starting):
                self.give_up(index)
            end_all(list(self._family.processes), grace_s, interrupts)
            if forgets:
                self._family.forget()
                self._finalizer.detach()

    def kill_all(self) -> None:
        """End all children at once, and forget them."""
        self._family.end()
        self._finalizer.detach()

    def _when_gone(self) -> weakref.finalize[[], ChildProcesses]:
        """End children where nobody has; who has needs no call there.

        What a signal's handler raises in such a call is dropped.
        """
        return weakref.finalize(self, self._family.end)

    def _bodies(self, plans: Sequence[ChildPlan]) -> list[bytes]:
        if self._start_method == "fork":
            return [b""] * len(plans)
        return [pickled_body(plan) for plan in plans]

    def _start_ready(
        self, wanted: _Wanted, interrupts: Interrupts, is_cancelled: Callable[[], bool]
    ) -> list[Any]:
        """Start children and wait until they are ready; what fails is gone when this raises."""
        tries = _SPAWN_TRIES if self._start_method == "spawn" else 1
        values: dict[int, Any] = {}
        while True:
            tries -= 1
            clashed = self._try_start(wanted, values, interrupts, is_cancelled, is_last=tries == 0)
            if not clashed:
                return [values[index] for index in sorted(values)]
            wanted = clashed

    def _try_start(
        self,
        wanted: _Wanted,
        values: dict[int, Any],
        interrupts: Interrupts,
        is_cancelled: Callable[[], bool],
        *,
        is_last: bool,
    ) -> _Wanted:
        """Start those of ``wanted``; gives those whose mappings found their place taken."""
        started: dict[int, Starting] = {}
        try:
            for index, (plan, body) in wanted.items():
                check_not_cancelled(is_cancelled)
                started[index] = self._start_one(index, plan, body)
            clashed = await_ready(list(started.values()), self._timeout_s, interrupts, is_cancelled)
            failure = clashed[0].failure if clashed and is_last else None
            if failure is not None:
                raise failure
        except BaseException:
            kill_all([one.process for one in started.values()])
            raise
        finally:
            for one in started.values():
                one.close()
        kill_all([one.process for one in clashed])
        values.update((index, one.value) for index, one in started.items())
        return {one.process.index: wanted[one.process.index] for one in clashed}

    def _start_one(self, index: int, plan: ChildPlan, body: bytes) -> Starting:
        try:
            if self._start_method == "fork":
                pid, reports = fork_child(plan, self._family.parent)
            else:
                pid, reports = spawn_child(plan, self._family.parent, body)
            process = _followed(index, plan.path, pid, reports)
        except OSError as error:
            refusal = _refusal(plan.path, index, error)
            if refusal is None:
                raise
            raise refusal from error
        self._family.processes[index : index + 1] = [process]
        return Starting(process, reports)


def _followed(index: int, path: str, pid: int, reports: ReportReader) -> ChildProcess:
    """Follow a child that was just started; one that cannot be is gone when this raises."""
    try:
        return ChildProcess(index, path, pid)
    except BaseException:
        close_parent_only(reports.descriptor)
        os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so it is the child
        os.waitpid(pid, 0)
        raise


def _refusal(path: str, running: int, error: OSError) -> CapacityError | None:
    """Say what the system has no room for, None for any other error."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return _no_room(path, running, error)
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CapacityError(
        f"{path} cannot be started after {running} other children: {error.strerror}; this process "
        f"may have {limit} open files (ulimit -n), and a child takes a few; close files, raise the "
        "limit, or use fewer children",
        name="descriptors",
        value=running + 1,
        limit=limit,
    )


def _no_room(path: str, running: int, error: OSError) -> CapacityError:
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    allowed = "any number of" if limit == resource.RLIM_INFINITY else str(limit)
    return CapacityError(
        f"{path} cannot be started after {running} other children: {error.strerror}; this user may "
        f"have {allowed} processes (ulimit -u), the machine or a control group (pids.max) perhaps "
        "fewer; end other processes, or use fewer children",
        name="processes",
        value=running + 1,
        limit=None if limit == resource.RLIM_INFINITY else limit,
    )
