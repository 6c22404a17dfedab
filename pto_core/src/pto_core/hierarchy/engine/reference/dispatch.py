"""Who is sent where, and when.

Groups go first, in the order in which they became ready. All members of a group are sent in one
step, so that any two groups have the same order in every child. A group that cannot go reserves its
children: neither single tasks nor later groups are sent there, so it waits for at most one
completion of each of them. Single tasks follow, then those that can be sent early.
"""

from __future__ import annotations

from pto_core.hierarchy.engine.events import NONE, Submit, Tag
from pto_core.hierarchy.engine.instructions import Requirement, RestoreRegions, SaveRegions, Send
from pto_core.hierarchy.engine.interface import Policy
from pto_core.hierarchy.engine.reference.children import Child, ChildState
from pto_core.hierarchy.engine.reference.core import Core
from pto_core.hierarchy.engine.reference.endings import Endings
from pto_core.hierarchy.engine.reference.slots import Task
from pto_core.hierarchy.states import State, StateEvent

GROUPS_IN_A_ROW = 64
"""After as many groups, a single task that waits goes first."""


class Dispatcher:
    """The event Dispatch."""

    def __init__(self, core: Core, endings: Endings, policy: Policy) -> None:
        self._core = core
        self._endings = endings
        self._policy = policy
        self._reserved: set[int] = set()
        """Children that a waiting group will have next; of this pass."""
        self._held_back = NONE

    def dispatch(self, *, newest: bool) -> None:
        """Send until nothing more can be sent."""
        self._held_back = NONE if newest else self._core.newest
        while self._pass():
            pass

    def _pass(self) -> bool:
        self._reserved = set()
        queues = self._core.queues
        has_sent = False
        if queues.groups_in_a_row >= GROUPS_IN_A_ROW:
            has_sent = any(self._try_single(number) for number in list(queues.singles))
        for number in list(queues.groups):
            has_sent = self._try_group(number) or has_sent
        for number in list(queues.singles):
            has_sent = self._try_single(number) or has_sent
        for number in list(queues.early):
            has_sent = self._try_early(number) or has_sent
        return has_sent

    def _ready(self, number: int) -> Task | None:
        """Give the task if it is still READY and not held back: a pass may end other tasks."""
        task = self._core.slots.tasks.get(number)
        if task is None or number == self._held_back:
            return None
        return task if self._core.slots.state(task) is State.READY else None

    def _try_group(self, number: int) -> bool:
        task = self._ready(number)
        if task is None:
            return False
        allowed = self._allowed(task)
        if self._fails_for_lack(task, allowed, task.members):
            return True
        ready = [child for child in allowed if child.state is ChildState.READY]
        free = [child for child in ready if child.has_room and child.number not in self._reserved]
        if len(free) >= task.members:
            chosen = self._members(task, free)
            self._send(task, chosen, StateEvent.DISPATCH)
            queues = self._core.queues
            queues.groups_in_a_row = queues.groups_in_a_row + 1 if queues.singles else 0
            return True
        unreserved = [child for child in ready if child.number not in self._reserved]
        if len(unreserved) >= task.members:
            self._reserved |= {child.number for child in self._members(task, unreserved)}
        elif _is_pinned(_spec(task)):
            self._reserved |= {child.number for child in ready if len(ready) == task.members}
        return False

    def _members(self, task: Task, children: list[Child]) -> list[Child]:
        """Pick a child for each member: the pinned ones, else wishes first, then the least busy."""
        spec = _spec(task)
        by_number = {child.number: child for child in children}
        if _is_pinned(spec):
            return [by_number[pin] for pin in spec.pins]
        wishes = [pin if pin in by_number else NONE for pin in spec.pins or (NONE,) * task.members]
        others = sorted(
            (child for child in children if child.number not in wishes),
            key=lambda child: (len(child.frames), child.number),
        )
        rest = iter(others)
        return [next(rest) if wish == NONE else by_number[wish] for wish in wishes]

    def _try_single(self, number: int) -> bool:
        task = self._ready(number)
        if task is None:
            return False
        allowed = self._allowed(task)
        if self._fails_for_lack(task, allowed, 1):
            return True
        child = self._pick(task, allowed)
        if child is None:
            return False
        self._send(task, [child], StateEvent.DISPATCH)
        self._core.queues.groups_in_a_row = 0
        return True

    def _pick(self, task: Task, allowed: list[Child]) -> Child | None:
        free = [child for child in allowed if child.has_room and child.number not in self._reserved]
        spec = _spec(task)
        for child in free:
            if child.number in spec.pins:
                return child
        if not free:
            return None
        candidates = [(child.number, len(child.frames)) for child in free]
        return self._core.children[self._policy(candidates, task.last_producer)]

    def _try_early(self, number: int) -> bool:
        """Send a task whose only unfinished producer has been sent, if it can go now."""
        core = self._core
        task = core.slots.tasks.get(number)
        if number == self._held_back:
            return False
        if task is None or not self._may_go_early(task):
            core.queues.early.remove(number)
            return False
        (producer_number,) = task.unfinished
        producer = core.slots.tasks[producer_number]
        spec = _spec(task)
        pin = spec.pins[0] if _is_pinned(spec) else NONE
        if pin == NONE and producer.is_followed:
            core.queues.early.remove(number)
            return False
        ((required, count),) = producer.children
        child = core.children[required if pin == NONE else pin]
        if not child.has_room or child.number in self._reserved:
            return False
        producer.is_followed = producer.is_followed or pin == NONE
        core.queues.early.remove(number)
        task.last_producer = required
        self._send(task, [child], StateEvent.DISPATCH_EARLY, Requirement(required, count))
        return True

    def _may_go_early(self, task: Task) -> bool:
        """Neither group nor retries on either side, and a failure that would poison the task."""
        core = self._core
        if core.slots.state(task) is not State.PENDING or len(task.unfinished) != 1:
            return False
        (number,) = task.unfinished
        producer = core.slots.tasks[number]
        return (
            core.slots.state(producer) is State.RUNNING
            and task.poison is None
            and core.cancelled is None
            and task.producers[number].poisons
            and all(each.members == 1 and not _spec(each).retries for each in (task, producer))
            and (_is_pinned(_spec(task)) or _spec(task).kind == _spec(producer).kind)
        )

    def _allowed(self, task: Task) -> list[Child]:
        spec = _spec(task)
        if _is_pinned(spec):
            return [self._core.children[pin] for pin in spec.pins]
        return self._core.children.of_kind(spec.kind)

    def _fails_for_lack(self, task: Task, allowed: list[Child], needed: int) -> bool:
        """Fail a task for which not enough children are left, with the cause of the first loss."""
        lost = [child for child in allowed if child.state is ChildState.LOST]
        if len(allowed) - len(lost) >= needed:
            return False
        self._endings.fail(task, lost[0].cause)
        return True

    def _send(
        self,
        task: Task,
        children: list[Child],
        event: StateEvent,
        requirement: Requirement | None = None,
    ) -> None:
        core = self._core
        core.slots.move(task, event)
        core.queues.remove(task.number)
        self._keep_regions(task)
        task.is_followed = False
        frames = []
        for member, child in enumerate(children):
            frame = child.send(task.number, member, requirement)
            frames.append((child.number, frame.count))
            core.instructions.append(
                Send(child.number, frame.count, task.number, member, requirement)
            )
        task.children = tuple(frames)
        for number in task.consumers:
            self._endings.consider_early(core.slots.tasks[number])

    def _keep_regions(self, task: Task) -> None:
        spec = _spec(task)
        if not spec.retries or not _has_inout(spec):
            return
        number = task.number
        kept = RestoreRegions(number) if task.has_saved_regions else SaveRegions(number)
        self._core.instructions.append(kept)
        task.has_saved_regions = True


def _spec(task: Task) -> Submit:
    assert task.spec is not None, "an allocation is never sent"
    return task.spec


def _is_pinned(spec: Submit) -> bool:
    return bool(spec.pins) and not spec.is_hint


def _has_inout(spec: Submit) -> bool:
    tensors = (tensor for member in spec.members for tensor in member.tensors)
    return any(tensor.tag is Tag.INOUT and tensor.nbytes for tensor in tensors)
