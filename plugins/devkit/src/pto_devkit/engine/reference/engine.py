"""The reference engine, which specifies the behaviour of all engines."""

from __future__ import annotations

from typing import assert_never

from pto_core.errors import UsageError
from pto_core.hierarchy.deadlock import Deadlock
from pto_core.hierarchy.placement import least_loaded
from pto_core.hierarchy.states import TRANSITIONS, Reference, State, Transitions
from pto_core.interfaces import Policy
from pto_devkit.engine.configuration import Configuration
from pto_devkit.engine.events import (
    NONE,
    Allocate,
    Cancel,
    ChildLost,
    ChildReady,
    Completion,
    Deadline,
    Dispatch,
    Event,
    RunBegin,
    RunEnd,
    ScopeBegin,
    ScopeEnd,
    Submit,
)
from pto_devkit.engine.instructions import Blocked, Instruction, RunFinished, SpaceFreed
from pto_devkit.engine.interface import EnginePolicy, Snapshot
from pto_devkit.engine.reference.checks import check_open
from pto_devkit.engine.reference.core import Core
from pto_devkit.engine.reference.dispatch import Dispatcher
from pto_devkit.engine.reference.endings import Endings
from pto_devkit.engine.reference.reports import Reports
from pto_devkit.engine.reference.snapshot import snapshot_of
from pto_devkit.engine.reference.submission import Submission
from pto_devkit.engine.reference.validation import validate


class ReferenceEngine:
    """The engine in Python, written for clarity; see :class:`pto_devkit.engine.Engine`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        policy: Policy | EnginePolicy = least_loaded,
        transitions: Transitions = TRANSITIONS,
    ) -> None:
        self._core = Core(configuration, transitions)
        self._endings = Endings(self._core)
        self._submission = Submission(self._core, self._endings)
        self._dispatcher = Dispatcher(self._core, self._endings, policy)
        self._reports = Reports(self._core, self._endings)
        self._blocked: Blocked | None = None

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; see the interface."""
        core = self._core
        core.instructions = []
        core.freed_rings = set()
        self._blocked = None
        self._handle(event)
        core.instructions += [SpaceFreed(ring) for ring in sorted(core.freed_rings)]
        if core.is_ending and not core.slots.tasks:
            core.is_running = core.is_ending = False
            core.instructions.append(
                RunFinished(core.tasks, tuple(core.failed), tuple(core.poisoned))
            )
        if core.instructions and isinstance(core.instructions[0], Blocked):
            self._blocked = core.instructions[0]
        return core.instructions

    def _handle(self, event: Event) -> None:
        match event:
            case Submit():
                check_open(self._core, "submit")
                self._submission.submit(event)
            case Allocate():
                check_open(self._core, "alloc")
                self._submission.allocate(event)
            case Dispatch():
                self._dispatcher.dispatch()
            case Completion():
                self._reports.completed(event)
            case ChildReady(child):
                self._reports.ready(child)
            case ChildLost():
                self._reports.lost(event)
            case Deadline():
                self._reports.deadline(event)
            case _:
                self._handle_run(event)

    def _handle_run(self, event: RunBegin | RunEnd | ScopeBegin | ScopeEnd | Cancel) -> None:
        core = self._core
        match event:
            case RunBegin(hazards):
                if core.is_running:
                    raise UsageError(
                        "a run begins while another is under way; end the other run first"
                    )
                core.restart(hazards)
                core.is_running = True
                core.scopes.begin()
            case ScopeBegin():
                check_open(core, "scope")
                core.scopes.begin()
            case ScopeEnd():
                check_open(core, "scope")
                if core.scopes.depth == 0:
                    raise UsageError("no scope is open; the outermost scope ends with the run")
                self._end_scope()
            case RunEnd():
                check_open(core, "the end of a run")
                if core.scopes.depth > 0:
                    raise UsageError(f"the run ends with {core.scopes.depth} scopes open")
                core.is_ending = True
                self._end_scope()
            case Cancel(cause):
                if core.is_running and core.cancelled is None:
                    self._cancel(cause)
            case _:
                assert_never(event)

    def _end_scope(self) -> None:
        for number in self._core.scopes.end():
            self._endings.drop(self._core.slots.tasks[number], Reference.SCOPE)

    def _cancel(self, cause: int) -> None:
        """Poison the READY tasks. This may end tasks that wait for them; other tasks end later."""
        core = self._core
        core.cancelled = cause
        core.queues.early.clear()
        for number in sorted(core.slots.tasks):
            task = core.slots.tasks.get(number)
            if task is not None and core.slots.state(task) is State.READY:
                self._endings.poison(task)

    def is_quiescent(self) -> bool:
        """Return whether no frame is in flight and no task is ready."""
        core = self._core
        in_flight = any(child.frames for child in core.children.all)
        return not (in_flight or core.queues.singles or core.queues.groups)

    def deadlock(self) -> Deadlock | None:
        """Return the proof that the blocked submit can never succeed; see the interface."""
        blocked = self._blocked
        if blocked is None or not self.is_quiescent():
            return None
        ring = self._core.rings[blocked.ring]
        oldest = ring.slabs[0].task
        scope = self._core.scopes.depth_of(oldest)
        return Deadlock(
            blocked.ring,
            blocked.requested,
            ring.held,
            blocked.size,
            oldest,
            NONE if scope is None else scope,
        )

    def snapshot(self) -> Snapshot:
        """Return the observable state."""
        return snapshot_of(self._core)

    def validate(self) -> None:
        """Raise :class:`InternalError` if an invariant does not hold; for tests."""
        validate(self._core)
