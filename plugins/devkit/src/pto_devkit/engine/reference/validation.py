"""Check the invariants by a full computation. Tests do this after every event."""

from __future__ import annotations

from collections import Counter

from pto_core.errors import InternalError
from pto_core.hierarchy.states import Reference, State
from pto_devkit.engine.reference.core import Core
from pto_devkit.engine.reference.slots import Task


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
        _require(slots.states[slot] is State.FREE, f"slot {slot} is not FREE")


def _validate_task(core: Core, task: Task) -> None:
    state = core.slots.state(task)
    name = f"task {task.number} ({state.name})"
    _require(state not in (State.FREE, State.CONSUMED), f"{name} is not alive")
    _require(task.references.total() > 0, f"{name} has no reference")
    _require(min(task.references.values()) >= 0, f"{name} has a negative reference count")
    has_finished = state in (State.COMPLETED, State.FAILED)
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
        _require(task.poison is None or state is not State.READY, f"{name} is poisoned")
    if state is State.PENDING:
        _require(bool(task.unfinished), f"{name} is PENDING without an unfinished producer")
    if state is State.READY:
        _require(not task.unfinished, f"{name} has unfinished producers")
    if has_finished:
        _require(not task.consumers and not task.holds, f"{name} has not notified all tasks")


def _validate_references(core: Core) -> None:
    expected: Counter[tuple[int, Reference]] = Counter()
    for task in core.slots.tasks.values():
        expected.update(task.holds)
    for tasks in core.scopes.open:
        expected.update((number, Reference.SCOPE) for number in tasks)
    for task in core.slots.tasks.values():
        for each in (Reference.SCOPE, Reference.CONSUMER, Reference.OWNER):
            found = task.references[each]
            count = expected.pop((task.number, each), 0)
            _require(found == count, f"task {task.number} has {found} {each.name}, not {count}")
    _require(not expected, f"references to tasks that do not exist: {expected}")


def _validate_queues(core: Core) -> None:
    ready = [n for n, task in core.slots.tasks.items() if core.slots.state(task) is State.READY]
    queued = core.queues.singles + core.queues.groups
    _require(sorted(queued) == sorted(ready), f"queued are {queued}, not {ready}")
    for number in core.queues.early:
        task = core.slots.tasks[number]
        _require(core.slots.state(task) is State.PENDING, f"early task {number} is not PENDING")
        _require(len(task.unfinished) == 1, f"early task {number} has not 1 producer")
        (producer,) = task.unfinished
        state = core.slots.state(core.slots.tasks[producer])
        _require(state is State.RUNNING, f"producer of early task {number} does not run")
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
        in_flight.update(frame.task for frame in child.frames)
    for number, task in core.slots.tasks.items():
        is_running = core.slots.state(task) is State.RUNNING
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
