"""Restart lost children, and track the state of each child and of its new process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from pto_core import log
from pto_core._hierarchy import Driver
from pto_core.errors import ChildStartError
from pto_core.hierarchy.child_hosts import ChildHosts
from pto_core.hierarchy.child_specs import ChildSpec
from pto_core.hierarchy.endpoints import ChildConnection
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.fence import Fence
from pto_core.hierarchy.processes import ChildExit, ChildProcesses

_QUICK_EXITS_MAX = 5


class ChildState(Enum):
    """The state of a child; a restarted child is still the same child."""

    ALIVE = "alive"
    FENCED = "fenced"  # its process has exited; the driver is informed when the fence is over
    LOST = "lost"  # the driver was informed; a new process will be started
    STARTING = "starting"
    GIVEN_UP = "given up"  # no new process will be started
    EMPTY = "empty"  # the place has no child


_PENDING = (ChildState.FENCED, ChildState.LOST, ChildState.STARTING)


class Replacement(NamedTuple):
    """The new process for a lost child, while it is starting."""

    connection: ChildConnection
    known: frozenset[bytes]  # digests of the callables that it received at its start


class Children(Protocol):
    """The parts of a child group that a restart uses."""

    driver: Driver
    processes: ChildProcesses
    hosts: ChildHosts

    def begin_restart(self, child: int) -> Replacement:
        """Start a new process for a lost child, without waiting for it. Raises PtoError."""

    def finish_restart(self, child: int, replacement: Replacement) -> None:
        """Connect the new process, which is ready."""

    def observe(self, hook: str, child: int, **arguments: Any) -> None:
        """Notify observers of an event of a child."""

    def trace_loss(self, child: int) -> None:
        """State in an open trace that a child was lost."""

    def completed_by(self, child: int) -> int:
        """Return how many tasks have ended in the child, in all of its processes together."""


class _Loss(NamedTuple):
    """The loss of a child. ``restarts``: whether a new process will start.

    ``returns``: whether that is reported to the driver, so that tasks wait for the child.
    """

    error: BaseException
    restarts: bool
    returns: bool


@dataclass
class _Child:
    fence: Fence | None
    has_launcher: bool  # whether a launcher places its host
    state: ChildState = ChildState.ALIVE
    loss: _Loss | None = None  # set only in the state FENCED
    replacement: Replacement | None = None  # set only in the state STARTING
    quick_exits: int = 0  # number of exits since a task last ended in the child
    completed: int = 0  # number of tasks that had ended at the last exit
    is_joining: bool = False  # until the first process of a child that joins is ready
    failure: BaseException | None = None  # why it did not join
    is_expected: bool = True  # whether the driver has, or expects, the child
    is_deferred: bool = False  # whether its start waits for the begin of a run


class Restarts:
    """The states of a Worker's children. Only the thread that owns the fork lock uses this object.

    A child changes from ALIVE to LOST to STARTING, and back to ALIVE. A child with a fence is
    FENCED before it is LOST. A child becomes GIVEN_UP if restarts are disabled, if its start fails,
    or if it exits repeatedly. A child that joins at an EMPTY place is LOST until its first start,
    but the driver is not informed of a loss.

    A child whose host a launcher places gets another host after each loss, and after a start that
    failed. If restarts are disabled, its start is deferred until the next run begins.

    ``pending``: the children that are FENCED, LOST or STARTING. Other objects only read it.
    """

    def __init__(self, specs: Sequence[ChildSpec], *, is_enabled: bool) -> None:
        self._children = [
            _Child(
                spec.fence,
                spec.has_launcher,
                ChildState.EMPTY if spec.is_empty else ChildState.ALIVE,
            )
            for spec in specs
        ]
        self.pending: dict[int, _Child] = {}
        self._is_enabled = is_enabled
        self._counts = {"deaths": 0, "restarts": 0}
        self.is_stopped = False

    def is_restarting(self, child: int) -> bool:
        """Return whether the child is FENCED, LOST or STARTING, and its start is not deferred."""
        return child in self.pending and not self.pending[child].is_deferred

    def begin_run(self) -> None:
        """Permit the starts that were deferred until a run begins."""
        for child in list(self.pending.values()):  # another thread may change the dict
            child.is_deferred = False

    def statistics(self) -> dict[str, int]:
        """Return the numbers of exits, of restarts, and of children whose fence is not over."""
        fenced = sum(child.state is ChildState.FENCED for child in self._children)
        return {**self._counts, "fenced": fenced}

    def join(self, number: int, spec: ChildSpec, completed: int) -> None:
        """Begin the start of a child at an empty place; :meth:`advance` continues it.

        ``completed``: how many tasks have ended in earlier children of this place.
        """
        self._children[number] = _Child(
            spec.fence,
            spec.has_launcher,
            completed=completed,
            is_joining=True,
            is_expected=False,
        )
        self._set(number, ChildState.LOST)

    def join_failure(self, number: int) -> BaseException | None:
        """Return why the last child that joined at a place could not start, or None."""
        return self._children[number].failure

    def leave(self, number: int) -> bool:
        """Make a place empty. Return whether the driver counts on its child."""
        child = self._children[number]
        self._set(number, ChildState.EMPTY)
        return child.is_expected

    def stop(self) -> None:
        """Start no more processes, because the Worker is closing."""
        self.is_stopped = True
        for child in list(self.pending):
            self._set(child, ChildState.GIVEN_UP)

    def lose(self, group: Children, ended: ChildExit) -> None:
        """Report the exit of a child to the driver once; begin a restart if restarts are enabled.

        For a child with a fence, :meth:`advance` reports the exit when the fence is over.
        """
        number, process = ended.index, group.processes[ended.index]
        child = self._children[number]
        if child.state is not ChildState.ALIVE or process.pid != ended.pid:
            return  # the process was starting; the check of its start detects its exit
        can_restart = self._is_enabled or child.has_launcher
        restarts = can_restart and self._count_exit(group, number)
        self._counts["deaths"] += 1
        group.trace_loss(number)
        loss = _Loss(process.exit_error(ended), restarts, restarts and self._is_enabled)
        if child.fence is None:
            self._report_loss(group, number, loss)
            return
        child.loss = loss
        self._set(number, ChildState.FENCED)
        child.fence.begin(ended)

    def advance(self, group: Children) -> None:
        """Advance each restart and fence as far as possible without waiting."""
        for number in list(self.pending):
            try:
                self._advance(group, number)
            except BaseException as error:
                if not self._tries_again(group, number, error):
                    self._give_up(group, number, error)
                if not isinstance(error, Exception):
                    raise

    def _advance(self, group: Children, number: int) -> None:
        child = self.pending[number]
        if child.fence is not None and child.loss is not None:
            if not child.fence.is_over():
                return
            self._report_loss(group, number, child.loss)
            if child.state is not ChildState.LOST:
                return
        replacement = child.replacement
        if replacement is not None:
            start = group.processes.check_start(number)
            if start.is_ready:
                group.finish_restart(number, replacement)
                child.replacement = None
                child.is_expected = True
                self._set(number, ChildState.ALIVE)
                self._counts["restarts"] += not child.is_joining
                event = "started" if child.is_joining else "restarted"
                group.observe(f"pto_child_{event}", number)
                child.is_joining = False
            if start.failure is None:
                return
            self._set(number, ChildState.LOST)
            log.get(__name__).warning("child lost during its start", reason=str(start.failure))
            if not self._count_exit(group, number):
                raise start.failure
            group.hosts.release(number)
        if not group.hosts.is_placed(number) or child.is_deferred:
            return
        child.replacement = group.begin_restart(number)
        self._set(number, ChildState.STARTING)

    def _report_loss(self, group: Children, number: int, loss: _Loss) -> None:
        child = self._children[number]
        self._set(number, ChildState.LOST if loss.restarts else ChildState.GIVEN_UP)
        child.is_expected = loss.returns
        child.is_deferred = loss.restarts and not loss.returns
        error = group.hosts.explained(number, loss.error)
        group.observe("pto_child_lost", number, error=error, restarts=loss.restarts)
        group.hosts.release(number)
        try:
            self._report(group, number, error, returns=loss.returns)
        finally:
            # includes tasks that were lost with the child
            child.completed = group.completed_by(number)

    def _tries_again(self, group: Children, number: int, error: BaseException) -> bool:
        """Return whether a child that could not start on its host gets another host."""
        child = self._children[number]
        is_of_host = child.has_launcher and isinstance(error, ChildStartError)
        if not is_of_host or child.is_joining or not self._count_exit(group, number):
            return False
        log.get(__name__).warning("child not restarted on this host", reason=str(error))
        group.processes.kill(number)
        group.hosts.release(number)
        self._set(number, ChildState.LOST)
        return True

    def _give_up(self, group: Children, number: int, error: BaseException) -> None:
        child = self._children[number]
        group.processes.kill(number)
        group.hosts.release(number)
        if child.is_joining:
            child.failure = error
            self._set(number, ChildState.EMPTY)
            return
        self._set(number, ChildState.GIVEN_UP)
        group.observe("pto_child_lost", number, error=error, restarts=False)
        if not child.is_expected:  # no task waits for the child, so none will raise the error
            log.get(__name__).warning("child not restarted", reason=str(error))
            return
        child.is_expected = False
        self._report(group, number, error, returns=False)

    def _report(self, group: Children, number: int, error: BaseException, *, returns: bool) -> None:
        cause = group.driver.add_cause(Failure.of(error).pack())
        group.driver.child_lost(number, cause, returns)

    def _set(self, number: int, state: ChildState) -> None:
        child = self._children[number]
        child.state = state
        if state in _PENDING:
            self.pending[number] = child
        else:
            self.pending.pop(number, None)
        if state is not ChildState.FENCED:
            child.loss = None
        if state is not ChildState.STARTING and child.replacement is not None:
            child.replacement.connection.discard()
            child.replacement = None

    def _count_exit(self, group: Children, number: int) -> bool:
        """Return False if the child has exited too often without ending a task, otherwise True."""
        child = self._children[number]
        if group.completed_by(number) > child.completed:
            child.quick_exits = 0
        child.quick_exits += 1
        return child.quick_exits <= _QUICK_EXITS_MAX
