"""Looking after children: a loss is found, told to the driver, and the child started anew.

The driver calls back on the thread of whoever waits, or on its own, with the GIL.
"""

from __future__ import annotations

import signal
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pto_core import log
from pto_core.errors import AbortedError, PtoError, WorkerClosedError
from pto_core.hierarchy.failures import Failure, child_broken, child_died, child_hung
from pto_core.hierarchy.processes import ChildEnding, ChildProcess
from pto_core.hierarchy.processes.parking import fork_lock
from pto_core.interrupts import Interrupts

if TYPE_CHECKING:
    from pto_core.hierarchy.crew import Crew
    from pto_core.hierarchy.runs import Runs

_END_S = 5.0
_QUICK_DEATHS_MAX = 5
_NONE = -1

Reason = Callable[[ChildEnding], PtoError]


class Supervision:
    """The hooks of a crew's driver, which keeps this alive and not the crew."""

    def __init__(self, crew: Crew) -> None:
        self._crew = weakref.ref(crew)
        self._mapping = crew.memory.mappings[0]  # what the driver uses of it
        self._runs: Callable[[], Runs | None] = lambda: None
        self._returns = crew.settings.config["on_worker_death"] != "reroute"
        # Of children that were ended here, until their end is told.
        self._reasons: WeakKeyDictionary[ChildProcess, Reason] = WeakKeyDictionary()
        self._interruption: BaseException | None = None  # for whoever waits
        self._is_policy_told = False  # in this run
        self._endings: list[ChildEnding] = []  # found, and not told yet
        self._to_restart: list[int] = []
        self._is_closing = False
        self._counts = {"deaths": 0, "restarts": 0}
        self._tasks_at_death: dict[int, int] = {}
        self._quick_deaths: dict[int, int] = {}

    @property
    def runs(self) -> Runs:
        """What the handles of tasks ask; raises WorkerClosedError when the Worker is gone."""
        runs = self._runs()
        if runs is None:
            raise WorkerClosedError("the Worker of this task is gone; ask before it is")
        return runs

    def follow(self, runs: Runs) -> None:
        """Let handles of tasks ask ``runs``, which is not kept alive."""
        self._runs = weakref.ref(runs)

    def statistics(self) -> dict[str, int]:
        """Count the children that died and those that were started anew."""
        return dict(self._counts)

    def begin(self) -> None:
        """Forget what was of the last run: another one begins."""
        self._interruption = None
        self._is_policy_told = False

    def interrupt(self, error: BaseException) -> None:
        """Let whoever waits for the run raise ``error``, as a signal would on the main thread."""
        self._interruption = error

    def stop(self) -> None:
        """Start nobody any more: the Worker closes."""
        self._is_closing = True

    def look(self) -> None:
        """Find children that are gone; nothing while another thread of the process may fork.

        Not waiting for that matters: it may wait for the driver's own thread, which calls this, to
        stand still. So losses are also told one after the other. Raises WorkerClosedError when the
        Worker is gone: nobody will do what is waited for.
        """
        crew, lock = self._crew(), fork_lock()
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption
        if crew is None:
            raise WorkerClosedError("the Worker of this task is gone; keep it, and close it")
        if not lock.acquire(blocking=False):
            return
        try:
            self._tell_policy(crew)
            self._endings += crew.processes.poll()
            if self._endings:
                with Interrupts():  # who is told half an ending waits for ever
                    self._lose_all(crew)
            while self._to_restart:
                self._restart(crew, self._to_restart[0])
        finally:
            lock.release()

    def _tell_policy(self, crew: Crew) -> None:
        """Let nothing more start in a run whose policy is of no use."""
        if crew.placement is not None and crew.placement.is_bad and not self._is_policy_told:
            self._is_policy_told = True
            failure = Failure.of(AbortedError("the placement policy of the run is of no use"))
            crew.driver.cancel(crew.driver.add_cause(failure.pack()))

    def end_child(self, child: int, cause: int) -> None:
        """Kill a child that is past the deadline of a task, or has to go at once."""
        crew = self._crew()
        if crew is None:
            return
        why = crew.driver.cause(cause)
        if why is not None and not why["data"] and why["task"] != _NONE:
            described = crew.driver.task(why["task"])
            if described is None or not _runs_in(child, described):
                return  # its child was lost meanwhile, and another one may be in its place
            timeout_s = described["timeout_s"]

            def is_late(ending: ChildEnding) -> PtoError:
                error = child_hung(ending, timeout_s)
                crew.driver.explain(cause, Failure.of(error).pack())
                return error

            self._kill(crew, child, is_late)
        else:
            self._kill(crew, child, child_died)

    def child_broken(self, child: int, words: str) -> None:
        """Kill a child whose connection is of no use any more."""
        crew = self._crew()
        if crew is not None:
            self._kill(crew, child, lambda ending: _broken(ending, words))

    def _kill(self, crew: Crew, child: int, reason: Reason) -> None:
        """Whoever finds it gone, this thread or another, gives the reason."""
        process = crew.processes[child]
        if process.is_alive:
            self._reasons[process] = reason
            process.kill()
            process.await_end(_END_S)
        self.look()

    def grant(self, ring: int, nbytes: int) -> int:
        """Let a heap ring use its first ``nbytes``; raises CapacityError."""
        crew = self._crew()
        assert crew is not None
        return crew.memory.grant(ring, nbytes)

    def _lose_all(self, crew: Crew) -> None:
        """Tell what was found; what something raises in between is told the next time."""
        while self._endings:
            self._lose(crew, self._endings[0])

    def _lose(self, crew: Crew, ending: ChildEnding) -> None:
        child = ending.index
        process = crew.processes[child]
        error = self._reasons.get(process, child_died)(ending)
        returns = self._returns and not self._is_closing and self._is_worth_it(crew, child)
        crew.driver.child_lost(child, crew.driver.add_cause(Failure.of(error).pack()), returns)
        self._endings.remove(ending)
        self._reasons.pop(process, None)
        self._counts["deaths"] += 1
        self._tasks_at_death[child] = crew.completed_by(child)  # with those that were lost
        if returns:
            self._to_restart.append(child)

    def _restart(self, crew: Crew, child: int) -> None:
        try:
            self._to_restart.remove(child)
            crew.restart(child)
        except BaseException as error:
            # Whatever it was: nobody may wait for this child any more.
            log.get(__name__).error("child not started anew", reason=str(error))
            crew.driver.child_lost(child, crew.driver.add_cause(Failure.of(error).pack()), False)
            if not isinstance(error, Exception):
                raise
        else:
            self._counts["restarts"] += 1

    def _is_worth_it(self, crew: Crew, child: int) -> bool:
        """Give up on a child that has died several times in a row without completing anything."""
        if crew.completed_by(child) > self._tasks_at_death.get(child, 0):
            self._quick_deaths[child] = 0
        self._quick_deaths[child] = self._quick_deaths.get(child, 0) + 1
        return self._quick_deaths[child] <= _QUICK_DEATHS_MAX


def _runs_in(child: int, described: dict[str, Any]) -> bool:
    """Whether a task runs in a child, or a member of it may."""
    is_there = described["members"] > 1 or described["child"] == child
    return bool(described["result"] == _NONE and is_there)


def _broken(ending: ChildEnding, words: str) -> PtoError:
    """One that ended by itself took its end of the connection with it."""
    is_killed = ending.signal == signal.SIGKILL
    return child_broken(ending, words) if is_killed else child_died(ending)
