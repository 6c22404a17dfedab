"""Restarts of lost children: the state of each child, and the process that replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from pto_core import log
from pto_core._hierarchy import Driver
from pto_core.hierarchy.endpoints import ChildConnection
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes import ChildExit, ChildProcesses

_QUICK_EXITS_MAX = 5


class ChildState(Enum):
    """The state of a child, whichever process runs it."""

    ALIVE = "alive"
    LOST = "lost"  # reported to the driver; another process follows
    STARTING = "starting"
    GIVEN_UP = "given up"  # no process follows


class Replacement(NamedTuple):
    """A process that replaces the one of a lost child, while it starts."""

    connection: ChildConnection
    known: frozenset[bytes]  # digests of the callables that it starts with


class Children(Protocol):
    """The parts of a child group that restarts use."""

    driver: Driver
    processes: ChildProcesses

    def begin_restart(self, child: int) -> Replacement:
        """Start a process for a lost child, without waiting for it. Raises PtoError."""

    def finish_restart(self, child: int, replacement: Replacement) -> None:
        """Connect a process that is ready."""

    def completed_by(self, child: int) -> int:
        """Return how many tasks all processes of a child have ended."""


@dataclass
class _Child:
    state: ChildState = ChildState.ALIVE
    replacement: Replacement | None = None  # while STARTING
    quick_exits: int = 0  # in a row, without a task that ended in between
    completed: int = 0  # at the last exit


class Restarts:
    """The states of the children of a Worker. The thread that owns the fork lock calls it.

    A child goes from ALIVE over LOST and STARTING back to ALIVE. It is GIVEN_UP where lost children
    are not restarted, where its start fails, and where it exits again and again.
    """

    def __init__(self, count: int, *, is_enabled: bool) -> None:
        self._children = [_Child() for _ in range(count)]
        self._pending: dict[int, _Child] = {}  # those that are LOST or STARTING
        self._is_enabled = is_enabled
        self._counts = {"deaths": 0, "restarts": 0}
        self.is_stopped = False

    @property
    def is_pending(self) -> bool:
        """Whether a restart is under way."""
        return bool(self._pending)

    def is_restarting(self, child: int) -> bool:
        """Return whether the child is LOST or STARTING."""
        return child in self._pending

    def statistics(self) -> dict[str, int]:
        """Count the children that exited and those that were restarted."""
        return dict(self._counts)

    def stop(self) -> None:
        """Start no more processes, because the Worker closes."""
        self.is_stopped = True
        for child in list(self._pending):
            self._set(child, ChildState.GIVEN_UP)

    def lose(self, group: Children, ended: ChildExit) -> None:
        """Report the exit of a child to the driver, once; a restart follows if it is enabled."""
        number, process = ended.index, group.processes[ended.index]
        child = self._children[number]
        if child.state is not ChildState.ALIVE or process.pid != ended.pid:
            return  # the check of its start finds it
        restarts = self._is_enabled and self._count_exit(group, number)
        self._set(number, ChildState.LOST if restarts else ChildState.GIVEN_UP)
        self._counts["deaths"] += 1
        try:
            self._report(group, number, process.exit_error(ended), restarts=restarts)
        finally:
            child.completed = group.completed_by(number)  # includes the tasks that were lost

    def advance(self, group: Children) -> None:
        """Bring each restart as far as possible without waiting."""
        for number in list(self._pending):
            try:
                self._advance(group, number)
            except BaseException as error:
                self._give_up(group, number, error)
                if not isinstance(error, Exception):
                    raise

    def _advance(self, group: Children, number: int) -> None:
        replacement = self._pending[number].replacement
        if replacement is not None:
            start = group.processes.check_start(number)
            if start.is_ready:
                group.finish_restart(number, replacement)
                self._children[number].replacement = None
                self._set(number, ChildState.ALIVE)
                self._counts["restarts"] += 1
            if start.failure is None:
                return
            self._set(number, ChildState.LOST)
            log.get(__name__).warning("child lost during its start", reason=str(start.failure))
            if not self._count_exit(group, number):
                raise start.failure
        self._children[number].replacement = group.begin_restart(number)
        self._set(number, ChildState.STARTING)

    def _give_up(self, group: Children, number: int, error: BaseException) -> None:
        log.get(__name__).error("child not restarted", reason=str(error))
        group.processes.kill(number)
        self._set(number, ChildState.GIVEN_UP)
        self._report(group, number, error, restarts=False)

    def _report(
        self, group: Children, number: int, error: BaseException, *, restarts: bool
    ) -> None:
        cause = group.driver.add_cause(Failure.of(error).pack())
        group.driver.child_lost(number, cause, restarts)

    def _set(self, number: int, state: ChildState) -> None:
        child = self._children[number]
        child.state = state
        if state in (ChildState.LOST, ChildState.STARTING):
            self._pending[number] = child
        else:
            self._pending.pop(number, None)
        if state is not ChildState.STARTING and child.replacement is not None:
            child.replacement.connection.discard()
            child.replacement = None

    def _count_exit(self, group: Children, number: int) -> bool:
        """Return False for a child that exits again and again without ending a task."""
        child = self._children[number]
        if group.completed_by(number) > child.completed:
            child.quick_exits = 0
        child.quick_exits += 1
        return child.quick_exits <= _QUICK_EXITS_MAX
