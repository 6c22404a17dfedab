"""The child processes of one Worker."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pto_core.errors.limits import system_error
from pto_core.interrupts import Interrupts
from pto_core.worker.processes.child_process import (
    ChildExit,
    ChildProcess,
    await_ready,
    check_not_cancelled,
    end_all,
    kill_all,
    wait_for_all,
    wait_for_any,
)
from pto_core.worker.processes.parking import close_parent_only, parent_only
from pto_core.worker.processes.starting import ChildPlan, pickled_body, start_process

_Wanted = dict[int, tuple[ChildPlan, bytes]]

_SPAWN_TRIES = 3
_GONE_GRACE_S = 1.0  # for the children of a Worker that was not closed


@dataclass
class _Family:
    """The processes and descriptors that are released with their ChildProcesses object."""

    owner: int  # the owning process; a forked process has a copy
    processes: dict[int, ChildProcess] = field(default_factory=dict)  # by child
    parent: int = -1  # a pidfd of the owner while it has children, otherwise -1

    def open(self) -> None:
        """Open the pidfd, before the first child starts."""
        if self.parent < 0:
            self.parent = parent_only(os.pidfd_open(self.owner))

    def end(self, grace_s: float = 0.0) -> None:
        """Kill the children that have not exited after ``grace_s``."""
        if os.getpid() == self.owner:
            wait_for_all(self.processes.values(), grace_s)
            kill_all(self.processes.values())
            self.forget()

    def forget(self) -> None:
        """Release the descriptors of children that have exited."""
        for child in self.processes.values():
            child.close_reports()
        self.processes.clear()
        if self.parent >= 0:
            descriptor, self.parent = self.parent, -1
            close_parent_only(descriptor)


class ChildProcesses:
    """Starts, monitors and ends the children of one Worker.

    Only one thread at a time may use it. When this object is destroyed, and when the interpreter
    exits, children that do not exit within a second are killed. In a forked process the object is
    empty, because the children are siblings of that process.
    """

    def __init__(self, timeout_s: float = 60.0) -> None:
        self._timeout_s = timeout_s
        self._family = _Family(os.getpid())
        self._finalizer = self._when_gone()

    def __len__(self) -> int:
        return len(self._family.processes)

    def __getitem__(self, index: int) -> ChildProcess:
        return self._family.processes[index]

    def __iter__(self) -> Iterator[ChildProcess]:
        return iter(list(self._family.processes.values()))

    def start(
        self,
        plans: Sequence[ChildPlan] | Mapping[int, ChildPlan],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Any]:
        """Start a child for each plan; return the values that the children passed to ``ready``.

        ``plans``: by child; for a sequence, the children are 0, 1 and so on. All children are
        started before this method waits for any of them. Raises ChildStartError, which names the
        child; CapacityError if the system refuses a process; UsageError for a plan that cannot be
        pickled for a spawned process; the exception of a signal handler, such as KeyboardInterrupt;
        AbortedError soon after ``is_cancelled()`` is true. After an error, no child is left
        running.
        """
        by_child = plans if isinstance(plans, Mapping) else dict(enumerate(plans))
        wanted = {child: (plan, _body(plan)) for child, plan in by_child.items()}
        if not self._finalizer.alive:
            self._finalizer = self._when_gone()
        try:
            with Interrupts() as interrupts:
                self._family.open()
                self._start_ready(wanted, interrupts, is_cancelled)
        except BaseException:
            with Interrupts():
                self.kill_all()
            raise
        return [self[index].value for index in sorted(wanted)]

    def replace(self, index: int, plan: ChildPlan) -> None:
        """Kill a child and start another process for it, without waiting; see :meth:`check_start`.

        The child may have had no process. Raises the errors of :meth:`start`. Then this child has
        no process; the others continue.
        """
        body = _body(plan)
        with Interrupts():
            self.kill(index)
            self._start_one(index, plan, body)

    def check_start(self, index: int) -> ChildProcess:
        """Return the child whose start :meth:`replace` began, without waiting.

        Afterwards a process that is ready is a normal child; :meth:`poll` returns its exit. A
        process with a ``failure`` has exited, and another attempt may succeed. Raises
        ChildStartError if the process failed or took too long; it has been killed then.
        """
        child = self[index]
        try:
            child.check_start(self._timeout_s)
        except BaseException:
            self.kill(index)
            raise
        if child.failure is not None:
            self.kill(index)
        return child

    def kill(self, index: int) -> None:
        """Kill a child, even during its start. Do nothing for a child without a process."""
        child = self._family.processes.get(index)
        if child is not None:
            kill_all([child])
            child.close_reports()

    def have_exited(self) -> bool:
        """Return whether :meth:`poll` would return an exit, without collecting the exit."""
        alive = [child for child in self if child.is_alive]
        return bool(alive) and wait_for_any(alive, 0)

    def poll(self) -> list[ChildExit]:
        """Return the exits since the last call, each exit once, without waiting."""
        return [taken for child in self if child.is_alive and (taken := child.poll()) is not None]

    def end_one(self, index: int, grace_s: float) -> None:
        """Wait for a child that was asked to close; after ``grace_s``, kill it.

        Another thread may use the other children meanwhile.
        """
        with Interrupts() as interrupts:
            end_all([self._family.processes[index]], grace_s, interrupts)

    def end(self, grace_s: float = 2.0, *, forgets: bool = True) -> None:
        """Wait for children that were asked to close; after ``grace_s``, kill the remaining ones.

        Children that are starting are killed at once. A second call does nothing. A signal such as
        Ctrl-C ends the wait, but not the method: its handler runs after all children have exited.
        If ``forgets`` is false, other threads may use and restart children until :meth:`kill_all`.
        """
        with Interrupts() as interrupts:
            for child in self:
                if child.reports >= 0:
                    self.kill(child.index)
            end_all(list(self), grace_s, interrupts)
            if forgets:
                self._family.forget()
                self._finalizer.detach()

    def kill_all(self) -> None:
        """Kill all children and release their descriptors."""
        self._family.end()
        self._finalizer.detach()

    def _when_gone(self) -> weakref.finalize[[], ChildProcesses]:
        """Return a finalizer that kills the children; :meth:`end` and :meth:`kill_all` detach it.

        The driver closes before, so an idle child exits by itself, and prints what it has buffered.
        An exception that a signal handler raises inside a Python finalizer would be lost.
        """
        return weakref.finalize(self, self._family.end, _GONE_GRACE_S)

    def _start_ready(
        self, wanted: _Wanted, interrupts: Interrupts, is_cancelled: Callable[[], bool]
    ) -> None:
        """Start children and wait until they are ready; after an error, end all of them.

        Start those again whose mappings found their addresses in use.
        """
        has_spawned = any(plan.start_method == "spawn" for plan, _ in wanted.values())
        tries = _SPAWN_TRIES if has_spawned else 1
        while wanted:
            tries -= 1
            started: list[ChildProcess] = []
            try:
                for index, (plan, body) in wanted.items():
                    check_not_cancelled(is_cancelled)
                    started.append(self._start_one(index, plan, body))
                clashed = await_ready(started, self._timeout_s, interrupts, is_cancelled)
                if clashed and clashed[0].failure is not None and not tries:
                    raise clashed[0].failure
            except BaseException:
                kill_all(started)
                raise
            finally:
                for child in started:
                    child.close_reports()
            kill_all(clashed)
            wanted = {child.index: wanted[child.index] for child in clashed}

    def _start_one(self, index: int, plan: ChildPlan, body: bytes) -> ChildProcess:
        try:
            pid, reports = start_process(plan, self._family.parent, body)
            child = _followed(index, plan.path, pid, reports)
        except OSError as error:
            running = sum(child.is_alive for child in self)
            text = f"{plan.path} cannot be started after {running} other children"
            raise system_error(f"{text}: {error.strerror}", error.errno, running + 1) from error
        self._family.processes[index] = child
        return child


def _body(plan: ChildPlan) -> bytes:
    return pickled_body(plan) if plan.start_method == "spawn" else b""


def _followed(index: int, path: str, pid: int, reports: int) -> ChildProcess:
    """Open the pidfd of a new child; kill the child if that fails."""
    try:
        return ChildProcess(index, path, pid, reports)
    except BaseException:
        close_parent_only(reports)
        # its exit was not collected, so the pid still belongs to the child
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
