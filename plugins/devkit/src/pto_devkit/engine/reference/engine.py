"""The reference engine, which specifies the behaviour of all engines.

:func:`snapshot_of` returns its observable state as plain data that two engines can compare.
:func:`validate` checks the invariants by a full computation; tests do this after every event.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any, assert_never

from pto_core.errors import InternalError, UsageError
from pto_core.interfaces import Policy
from pto_core.worker.deadlock import Deadlock
from pto_core.worker.placement import least_loaded
from pto_core.worker.states import TRANSITIONS, Reference, TaskState, Transitions
from pto_devkit.engine.interface import (
    NONE,
    Allocate,
    Cancel,
    CancelTask,
    ChildLost,
    ChildReady,
    Completion,
    Configuration,
    Deadline,
    Delay,
    Dispatch,
    EnginePolicy,
    Event,
    GiveUp,
    Hazards,
    Instruction,
    Resume,
    RunBegin,
    RunEnd,
    RunFinished,
    ScopeBegin,
    ScopeEnd,
    Snapshot,
    SpaceFreed,
    Submit,
    Withdraw,
    Withdrawn,
)
from pto_devkit.engine.reference.core import Child, Core, HeapRing, Run, Task
from pto_devkit.engine.reference.dispatch import Dispatcher
from pto_devkit.engine.reference.endings import Endings, Reports
from pto_devkit.engine.reference.submission import Submission, open_run

RUNS_MAX = 256
"""The largest number of runs that are open at once."""


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

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; see the interface."""
        core = self._core
        core.instructions = []
        core.freed_rings = set()
        self._handle(event)
        core.instructions += [SpaceFreed(ring) for ring in sorted(core.freed_rings)]
        for number, run in enumerate(core.runs):
            if core.freed_rings:
                run.blocked = None
            if run.is_open and run.is_ending and not run.unfinished:
                run.is_open = False
                core.forget_failures(run)
                core.instructions.append(
                    RunFinished(run.tasks, tuple(run.failed), tuple(run.poisoned), number)
                )
        return core.instructions

    def _handle(self, event: Event) -> None:
        core = self._core
        match event:
            case Submit():
                self._submission.submit(event)
            case Allocate():
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
            case Withdraw():
                self._reports.withdraw(event)
            case Withdrawn():
                self._reports.withdrawn(event)
            case RunBegin(hazards):
                self._begin(hazards)
            case GiveUp(number):
                if number < len(core.runs):
                    core.runs[number].blocked = None
            case ScopeBegin(number):
                open_run(core, number, "scope").scopes.begin()
            case ScopeEnd(number):
                run = open_run(core, number, "scope")
                if run.scopes.depth == 0:
                    raise UsageError("no scope is open; the outermost scope ends with the run")
                self._end_scope(run)
            case RunEnd(number):
                run = open_run(core, number, "the end of a run")
                if run.scopes.depth > 0:
                    raise UsageError(f"the run ends with {run.scopes.depth} scopes open")
                run.is_ending = True
                self._end_scope(run)
            case Cancel(cause, number):
                self._cancel(cause, number)
            case CancelTask(task, cause):
                self._cancel_task(task, cause)
            case Delay(task):
                self._delay(task)
            case Resume(task):
                self._resume(task)
            case _:
                assert_never(event)

    def _begin(self, hazards: Hazards) -> None:
        core = self._core
        if not any(run.is_open for run in core.runs):
            core.restart(hazards)
        if core.hazards is not hazards:
            raise UsageError(
                "a run begins while another with other hazards is under way; end the other run "
                "first"
            )
        free = [number for number, run in enumerate(core.runs) if not run.is_open]
        number = free[0] if free else len(core.runs)
        if number == RUNS_MAX:
            raise UsageError(f"{RUNS_MAX} runs are under way; end one of them first")
        core.runs[number : number + 1] = [Run()]

    def _end_scope(self, run: Run) -> None:
        for number in run.scopes.end():
            self._endings.drop(self._core.slots.tasks[number], Reference.SCOPE)

    def _cancel(self, cause: int, number: int) -> None:
        """Poison the READY and the delayed tasks. This may end tasks that wait for them.

        Other tasks end later.
        """
        core = self._core
        run = core.runs[number] if number < len(core.runs) else None
        if run is None or not run.is_open or run.cancelled is not None:
            return
        run.cancelled = cause
        mine = [one for one, task in sorted(core.slots.tasks.items()) if self._is_of(task, run)]
        for one in mine:
            core.queues.remove_early(one)
        for one in mine:
            task = core.slots.tasks.get(one)
            if task is not None and self._is_ready(task):
                self._endings.poison(task)

    def _is_of(self, task: Task, run: Run) -> bool:
        is_unfinished = self._core.slots.is_unfinished(task.number)
        return is_unfinished and self._core.run_of(task) is run

    def _is_ready(self, task: Task) -> bool:
        state = self._core.slots.state(task)
        return state is TaskState.READY or (state is TaskState.PENDING and task.is_delayed)

    def _cancel_task(self, number: int, cause: int) -> None:
        core = self._core
        task = core.slots.tasks.get(number)
        if task is None or task.cancelled is not None:
            return
        state = core.slots.state(task)
        if state is TaskState.RUNNING:
            task.attempts = 0
        if state not in (TaskState.PENDING, TaskState.READY):
            return
        core.queues.remove(number)
        task.cancelled = cause
        if state is TaskState.READY:
            self._endings.fail(task, cause)
        elif not task.unfinished:  # delayed
            self._endings.settle(task)

    def _delay(self, number: int) -> None:
        core = self._core
        task = core.slots.tasks.get(number)
        if task is not None and task.attempts and core.slots.state(task) is TaskState.RUNNING:
            task.is_delayed = True

    def _resume(self, number: int) -> None:
        task = self._core.slots.tasks.get(number)
        if task is None or not task.is_delayed:
            return
        task.is_delayed = False
        if self._core.slots.state(task) is TaskState.PENDING:
            self._endings.settle(task)

    def is_quiescent(self) -> bool:
        """Return whether no frame is in flight and no task is ready or delayed."""
        core = self._core
        in_flight = any(child.frames for child in core.children.all)
        is_delayed = any(task.is_delayed for task in core.slots.tasks.values())
        return not (in_flight or core.queues.singles or core.queues.groups or is_delayed)

    def deadlock(self, run: int = 0) -> Deadlock | None:
        """Return the proof that the blocked submit can never succeed; see the interface."""
        runs = self._core.runs
        blocked = runs[run].blocked if run < len(runs) else None
        can_continue = any(
            one.is_open and not one.is_ending and one.blocked is None for one in runs
        )
        if blocked is None or can_continue or not self.is_quiescent():
            return None
        ring = self._core.rings[blocked.ring]
        oldest = ring.slabs[0].task
        depths = [one.scopes.depth_of(oldest) for one in runs]
        scope = next((depth for depth in depths if depth is not None), None)
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


def snapshot_of(core: Core) -> Snapshot:
    """Return a snapshot. It does not change when the engine changes."""
    return {
        "conservative_edges": core.conservative_edges,
        "runs": [_run(run) for run in core.runs],
        "tasks": {number: _task(core, task) for number, task in core.slots.tasks.items()},
        "queues": {
            "singles": list(core.queues.singles),
            "groups": list(core.queues.groups),
            "early": list(core.queues.early),
        },
        "children": [_child(child) for child in core.children.all],
        "rings": [_ring(ring) for ring in core.rings],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "is_open": run.is_open,
        "is_ending": run.is_ending,
        "cancelled": run.cancelled,
        "tasks": run.tasks,
        "unfinished": run.unfinished,
        "failed": list(run.failed),
        "poisoned": list(run.poisoned),
        "scopes": [list(tasks) for tasks in run.scopes.open],
    }


def _task(core: Core, task: Task) -> dict[str, Any]:
    return {
        "state": core.slots.state(task).name,
        "unfinished": sorted(task.unfinished),
        "references": {each.name: task.references[each] for each in Reference},
        "attempts": task.attempts,
        "ended": task.ended,
        "poison": task.poison,
        "children": list(task.children),
    }


def _child(child: Child) -> dict[str, Any]:
    return {
        "state": child.state.name,
        "sent": child.sent,
        "completed": child.completed,
        "in_flight": [(frame.task, frame.member) for frame in child.frames],
    }


def _ring(ring: HeapRing) -> dict[str, int]:
    return {"head": ring.head, "used": ring.used, "size": ring.size}


def validate(core: Core) -> None:
    """Raise :class:`InternalError` with the first invariant that does not hold."""
    _validate_slots(core)
    for task in core.slots.tasks.values():
        _validate_task(core, task)
    _validate_references(core)
    _validate_queues(core)
    _validate_children(core)
    _validate_memory(core)


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise InternalError(f"an invariant does not hold: {text}")


def _validate_slots(core: Core) -> None:
    slots = core.slots
    used = [task.slot for task in slots.tasks.values()]
    _require(
        sorted(used + slots.free) == list(range(len(slots.states))),
        "a slot is both in use and free, or neither",
    )
    for slot in slots.free:
        _require(slots.states[slot] is TaskState.FREE, f"slot {slot} is not FREE")


def _validate_task(core: Core, task: Task) -> None:
    state = core.slots.state(task)
    name = f"task {task.number} ({state.name})"
    _require(state not in (TaskState.FREE, TaskState.CONSUMED), f"{name} is not alive")
    _require(task.references.total() > 0, f"{name} has no reference")
    _require(min(task.references.values()) >= 0, f"{name} has a negative reference count")
    has_finished = state in (TaskState.COMPLETED, TaskState.FAILED)
    _require(
        (task.references[Reference.SELF] == 0) == has_finished,
        f"{name}: SELF contradicts the state",
    )
    _require(task.unfinished <= set(task.producers), f"{name} waits for a task that is no producer")
    if not has_finished:
        expected = {n for n in task.producers if core.slots.is_unfinished(n)}
        _require(
            task.unfinished == expected, f"{name} waits for {task.unfinished}, not for {expected}"
        )
        _require(task.poison is None or state is not TaskState.READY, f"{name} is poisoned")
    if state is TaskState.PENDING:
        _require(
            bool(task.unfinished) or task.is_delayed,
            f"{name} is PENDING without an unfinished producer or a delay",
        )
    if state is TaskState.READY:
        _require(not task.unfinished, f"{name} has unfinished producers")
    if has_finished:
        _require(not task.consumers and not task.holds, f"{name} has not notified all tasks")


def _validate_references(core: Core) -> None:
    expected: Counter[tuple[int, Reference]] = Counter()
    for task in core.slots.tasks.values():
        expected.update(task.holds)
    for tasks in chain.from_iterable(run.scopes.open for run in core.runs):
        expected.update((number, Reference.SCOPE) for number in tasks)
    for task in core.slots.tasks.values():
        for each in (Reference.SCOPE, Reference.CONSUMER, Reference.OWNER):
            found = task.references[each]
            count = expected.pop((task.number, each), 0)
            _require(found == count, f"task {task.number} has {found} {each.name}, not {count}")
    _require(not expected, f"references to tasks that do not exist: {expected}")


def _validate_queues(core: Core) -> None:
    ready = [n for n, task in core.slots.tasks.items() if core.slots.state(task) is TaskState.READY]
    queued = core.queues.singles + core.queues.groups
    _require(sorted(queued) == sorted(ready), f"queued are {queued}, not {ready}")
    for number in core.queues.early:
        task = core.slots.tasks[number]
        _require(core.slots.state(task) is TaskState.PENDING, f"early task {number} is not PENDING")
        _require(len(task.unfinished) == 1, f"early task {number} has not 1 producer")
        (producer,) = task.unfinished
        state = core.slots.state(core.slots.tasks[producer])
        _require(state is TaskState.RUNNING, f"producer of early task {number} does not run")
    _require(len(set(core.queues.early)) == len(core.queues.early), "an early task is queued twice")
    for number in core.queues.groups:
        _require(core.slots.tasks[number].members > 1, f"task {number} is not a group")


def _validate_children(core: Core) -> None:
    in_flight: Counter[int] = Counter()
    for child in core.children.all:
        counts = [frame.count for frame in child.frames]
        _require(
            counts == list(range(child.completed + 1, child.sent + 1)),
            f"child {child.number} has frames {counts}, not {child.completed + 1} to {child.sent}",
        )
        _require(
            len(counts) <= child.configuration.window, f"child {child.number} exceeds its window"
        )
        in_flight.update(frame.task for frame in child.frames if frame.task != NONE)
    for number, task in core.slots.tasks.items():
        is_running = core.slots.state(task) is TaskState.RUNNING
        expected = task.members - task.ended if is_running else 0
        _require(in_flight[number] == expected, f"task {number} has not {expected} frames")
        in_flight.pop(number, None)
    _require(not +in_flight, f"frames of tasks that do not exist: {in_flight}")


def _validate_memory(core: Core) -> None:
    for ring in core.rings:
        _require(ring.used <= ring.size, f"ring {ring.number} uses more than its size")
        ends = [0]
        for slab in ring.slabs:
            _require(slab.begin >= ends[-1], f"slabs of ring {ring.number} overlap")
            _require(
                slab.is_released != (slab.task in core.slots.tasks),
                f"the slab of task {slab.task} is wrongly live or released",
            )
            ends.append(slab.end)
    for entry in core.regions.entries:
        is_known = entry.task in core.slots.tasks or (entry.is_writer and entry.task in core.roots)
        _require(is_known, f"a region names the dead task {entry.task}")
