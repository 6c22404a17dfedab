"""The dispatcher decides which task is sent to which child, and when.

Groups are sent first, in the order in which they became ready. All members of a group are sent in
one step, so two groups have the same order in every child. A group that cannot be sent reserves its
children: no single task and no later group is sent to them, so the group waits for at most one
completion of each child. If a group can neither be sent nor reserve children, although all of its
children are READY, no later group of the same kind is sent in this pass. Then single tasks are
sent, and finally tasks that can be sent before their producer has finished.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_core.interfaces import Policy
from pto_core.worker.states import TaskEvent, TaskState
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    NONE,
    EnginePolicy,
    Kind,
    Requirement,
    RestoreRegions,
    SaveRegions,
    Send,
    Submit,
)
from pto_devkit.engine.reference.core import Child, ChildState, Core, Task, spec_of
from pto_devkit.engine.reference.endings import Endings

GROUPS_IN_A_ROW = 64
"""After this many consecutive groups, a waiting single task is sent first."""


class Dispatcher:
    """Handles the event Dispatch."""

    def __init__(self, core: Core, endings: Endings, policy: Policy | EnginePolicy) -> None:
        self._core = core
        self._endings = endings
        self._policy = policy
        self._reserved: set[int] = set()
        """The children that are reserved for a waiting group in this pass."""
        self._closed: set[Kind] = set()
        """The kinds of tasks whose groups are not sent any more in this pass."""

    def dispatch(self) -> None:
        """Send tasks until no more can be sent."""
        while self._pass():
            pass

    def _pass(self) -> bool:
        self._reserved = set()
        self._closed = set()
        queues = self._core.queues
        has_sent = False
        if queues.groups_in_a_row >= GROUPS_IN_A_ROW:
            has_sent = any(self._try_single(number) for number in list(queues.singles))
        for number in list(queues.groups):
            has_sent = self._try_group(number) or has_sent
        has_sent = self._drain(queues.singles, self._try_single) or has_sent
        return self._drain(queues.early, self._try_early) or has_sent

    def _drain(self, queue: list[int], try_to_send: Callable[[int], bool]) -> bool:
        """Send the oldest tasks that can be sent, including tasks that are queued meanwhile."""
        has_sent = False
        is_progress = True
        while is_progress and self._can_change_any():
            is_progress = False
            for number in list(queue):
                if try_to_send(number):
                    has_sent = is_progress = True
                    if not self._can_change_any():
                        break
        return has_sent

    def _can_change_any(self) -> bool:
        """Return whether a dispatch can change anything: a child has free space or is lost."""
        return any(
            child.state is ChildState.LOST
            or (child.has_space and child.number not in self._reserved)
            for child in self._core.children.all
        )

    def _ready(self, number: int) -> Task | None:
        """Return the task if it is still READY; sending an earlier task may have ended it."""
        task = self._core.slots.tasks.get(number)
        if task is None:
            return None
        return task if self._core.slots.state(task) is TaskState.READY else None

    def _try_group(self, number: int) -> bool:
        task = self._ready(number)
        if task is None or spec_of(task).kind in self._closed:
            return False
        allowed = self._allowed(task)
        if self._fails_for_lack(task, allowed, task.members):
            return True
        ready = [child for child in allowed if child.state is ChildState.READY]
        unreserved = [child for child in ready if child.number not in self._reserved]
        free = [child for child in unreserved if child.has_space]
        if len(free) >= task.members:
            chosen = self._members(task, free)
            self._send(task, chosen, TaskEvent.DISPATCH)
            queues = self._core.queues
            queues.groups_in_a_row = queues.groups_in_a_row + 1 if queues.singles else 0
            return True
        if len(unreserved) >= task.members:
            self._reserved |= {child.number for child in self._members(task, unreserved)}
        elif unreserved and spec_of(task).is_pinned and len(ready) == task.members:
            self._reserved |= {child.number for child in unreserved}
        elif len(ready) >= task.members:
            self._closed.add(spec_of(task).kind)
        return False

    def _members(self, task: Task, children: list[Child]) -> list[Child]:
        """Choose a child for each member: its pin or hint, otherwise the least busy child."""
        spec = spec_of(task)
        by_number = {child.number: child for child in children}
        if spec.is_pinned:
            return [by_number[pin] for pin in spec.pins]
        wishes = [pin if pin in by_number else NONE for pin in spec.pins or (NONE,) * task.members]
        others = sorted(
            (child for child in children if child.number not in wishes),
            key=lambda child: (child.load, child.number),
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
        self._send(task, [child], TaskEvent.DISPATCH)
        self._core.queues.groups_in_a_row = 0
        return True

    def _pick(self, task: Task, allowed: list[Child]) -> Child | None:
        free = [
            child for child in allowed if child.has_space and child.number not in self._reserved
        ]
        spec = spec_of(task)
        for child in free:
            if child.number in spec.pins:
                return child
        if not free:
            return None
        candidates = [(child.number, child.load) for child in free]
        if isinstance(self._policy, EnginePolicy):
            picked = self._policy.pick(candidates, task.last_producer, task.number)
        else:
            picked = self._policy(candidates, task.last_producer)
        return self._core.children[picked]

    def _try_early(self, number: int) -> bool:
        """Send a task before its only unfinished producer has ended, if a child has free space."""
        core = self._core
        task = core.slots.tasks[number]
        (producer,) = task.unfinished
        ((required, count),) = core.slots.tasks[producer].children
        spec = spec_of(task)
        child = core.children[spec.pins[0] if spec.is_pinned else required]
        if not child.has_space or child.number in self._reserved:
            return False
        task.last_producer = required
        self._send(task, [child], TaskEvent.DISPATCH_EARLY, Requirement(required, count))
        return True

    def _allowed(self, task: Task) -> list[Child]:
        spec = spec_of(task)
        if spec.is_pinned:
            return [self._core.children[pin] for pin in spec.pins]
        return self._core.children.of_kind(spec.kind)

    def _fails_for_lack(self, task: Task, allowed: list[Child], needed: int) -> bool:
        """Fail a task if too few children are left for it; the cause is the last loss."""
        lost = [child for child in allowed if child.state is ChildState.LOST]
        if len(allowed) - len(lost) >= needed:
            return False
        # Causes have ascending numbers.
        self._endings.fail(task, max(child.cause for child in lost))
        return True

    def _send(
        self,
        task: Task,
        children: list[Child],
        event: TaskEvent,
        requirement: Requirement | None = None,
    ) -> None:
        core = self._core
        core.slots.move(task, event)
        core.queues.remove(task.number)
        self._keep_regions(task)
        task.follower = NONE
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
        spec = spec_of(task)
        if not spec.retries or not _has_inout(spec):
            return
        number = task.number
        kept = RestoreRegions(number) if task.has_saved_regions else SaveRegions(number)
        self._core.instructions.append(kept)
        task.has_saved_regions = True


def _has_inout(spec: Submit) -> bool:
    tensors = (tensor for member in spec.members for tensor in member.tensors)
    return any(tensor.tag is Tag.INOUT and tensor.nbytes for tensor in tensors)
