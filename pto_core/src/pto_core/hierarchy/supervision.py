"""Looking after children: a loss is found, told to the driver, and the child started anew.

The driver calls back on the thread of whoever waits, or on its own, with the GIL.
"""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pto_core import log
from pto_core.errors import AbortedError, PtoError, UsageError, WorkerClosedError
from pto_core.hierarchy.event_loops import EventLoops
from pto_core.hierarchy.failures import Failure, child_broken, child_died, child_hung
from pto_core.hierarchy.processes import ChildEnding, ChildProcess, refuse_inside
from pto_core.hierarchy.processes.parking import fork_lock
from pto_core.interrupts import Interrupts

if TYPE_CHECKING:
    from pto_core.hierarchy.crew import Crew
    from pto_core.hierarchy.endpoints import ChildConnection
    from pto_core.hierarchy.runs import Runs

_END_S = 5.0
_NAP_S = 0.002  # of who needs a child that is being started
_PAUSE_NS = 50_000_000  # as often as the driver looks while it has work
_QUICK_DEATHS_MAX = 5
_NONE = -1

Reason = Callable[[ChildEnding], PtoError]


class Restart(NamedTuple):
    """A child that takes the place of a lost one, while it starts."""

    connection: ChildConnection
    known: frozenset[bytes]  # the callables that it starts with, by digest


class Supervision:
    """The hooks of a crew's driver, which keeps this alive and not the crew."""

    def __init__(self, crew: Crew) -> None:
        self.event_loops = EventLoops()
        self._crew = weakref.ref(crew)
        self._mapping = crew.memory.mappings[0]  # what the driver uses of it
        self._runs: Callable[[], Runs | None] = lambda: None
        self._returns = crew.settings.config["on_worker_death"] != "reroute"
        # Of children that were ended here, until their end is told.
        self._reasons: WeakKeyDictionary[ChildProcess, Reason] = WeakKeyDictionary()
        self._interruption: BaseException | None = None  # for whoever waits
        self._is_policy_told = False  # in this run
        self._begun_ns = 0
        self._endings: list[ChildEnding] = []  # found, and not told yet
        # Children on their way back; None for one that is to be begun.
        self._returning: dict[int, Restart | None] = {}
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

    def look_after_pause(self) -> None:
        """Find children that died since the last run: no task of the new one fails for that.

        To look takes a good part of a short run, so this does not where runs follow each other at
        once.
        """
        now = time.monotonic_ns()
        if now - self._begun_ns >= _PAUSE_NS:
            self._look_after()
        self._begun_ns = now

    def interrupt(self, error: BaseException) -> None:
        """Let whoever waits for the run raise ``error``, as a signal would on the main thread."""
        self._interruption = error

    def stop(self) -> None:
        """Start nobody any more, and let go of who is on the way: the Worker closes."""
        with fork_lock():  # another thread may be in the middle of a look
            self._is_closing = True
            returning, self._returning = self._returning, {}
        for restart in returning.values():
            if restart is not None:
                restart.connection.discard()

    def await_return(self, child: int) -> None:
        """Return when a child is not, or not any more, on its way back; at once mostly.

        Nobody else may have looked since it died.
        """
        self._look_after()
        while child in self._returning:
            time.sleep(_NAP_S)
            self._look_after()

    def look(self) -> None:
        """Find children that are gone, or back; nothing while another thread may fork.

        Not waiting for that matters: it may wait for the driver's own thread, which calls this, to
        stand still. So losses are also told one after the other. Raises WorkerClosedError when the
        Worker is gone: nobody will do what is waited for.
        """
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption
        self._look_after()

    def _look_after(self) -> None:
        crew, lock = self._crew(), fork_lock()
        if crew is None:
            raise WorkerClosedError("the Worker of this task is gone; keep it, and close it")
        if not self._is_due(crew):
            return
        try:
            refuse_inside()
        except UsageError:
            return  # nobody can fork in a policy of another Worker: the next look does it
        # Who is told half an ending, or none, waits for ever, and so does who needs the lock.
        with Interrupts():
            if not lock.acquire(blocking=False):
                return
            try:
                if self._is_closing:
                    return  # whoever closes ends children, and then the run for all of them
                self._tell_policy(crew)
                self._endings += crew.processes.poll()
                self._lose_all(crew)
                self._go_on_with_all(crew)
            finally:
                lock.release()

    def _is_due(self, crew: Crew) -> bool:
        """Whether there is something to do; that may change, for nothing is locked."""
        if self._endings or self._returning or self._is_policy_news(crew):
            return True
        return crew.processes.have_ended()

    def _is_policy_news(self, crew: Crew) -> bool:
        is_bad = crew.placement is not None and crew.placement.is_bad
        return is_bad and not self._is_policy_told

    def _tell_policy(self, crew: Crew) -> None:
        """Let nothing more start in a run whose policy is of no use."""
        if self._is_policy_news(crew):
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
        if child in self._returning or process.pid != ending.pid:
            self._endings.remove(ending)  # seen where its start is looked at
            return
        error = self._reasons.get(process, child_died)(ending)
        returns = self._returns and not self._is_closing and self._is_worth_it(crew, child)
        cause = crew.driver.add_cause(Failure.of(error).pack())
        try:
            crew.driver.child_lost(child, cause, returns)
        finally:  # whatever comes out of it: twice would be worse
            self._endings.remove(ending)
            self._reasons.pop(process, None)
            self._counts["deaths"] += 1
            self._tasks_at_death[child] = crew.completed_by(child)  # with those that were lost
            if returns:
                self._returning[child] = None

    def _go_on_with_all(self, crew: Crew) -> None:
        """Bring each child that is on its way back as far as it comes without waiting."""
        for child in list(self._returning):
            try:
                self._go_on(crew, child)
            except BaseException as error:
                self._give_up(crew, child, error)
                if not isinstance(error, Exception):
                    raise

    def _go_on(self, crew: Crew, child: int) -> None:
        restart = self._returning[child]
        if restart is not None:
            start = crew.processes.look(child)
            if start.is_ready:
                crew.finish(child, restart)
                del self._returning[child]
                self._counts["restarts"] += 1
            if start.failure is None:
                return
            restart.connection.discard()
            self._returning[child] = None
            log.get(__name__).warning("child lost while it was started", reason=str(start.failure))
            if not self._is_worth_it(crew, child):
                raise start.failure
        self._returning[child] = crew.begin(child)

    def _give_up(self, crew: Crew, child: int, error: BaseException) -> None:
        """Whatever it was: nobody may wait for this child any more."""
        log.get(__name__).error("child not started anew", reason=str(error))
        restart = self._returning.pop(child)
        crew.processes.give_up(child)
        if restart is not None:
            restart.connection.discard()
        crew.driver.child_lost(child, crew.driver.add_cause(Failure.of(error).pack()), False)

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
