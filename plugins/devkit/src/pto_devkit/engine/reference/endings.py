"""The changes of a task's state, and the reports of children that cause them.

States change by: ready, end, failure, poison, retry, consumption. Reports: completions, and the
loss of a child.
"""

from __future__ import annotations

from collections import deque

from pto_core.errors import ProtocolError
from pto_core.worker.states import Reference, TaskEvent, TaskState
from pto_devkit.engine.interface import (
    NONE,
    ChildLost,
    Completion,
    Deadline,
    DropRegions,
    EndChild,
    Outcome,
    Result,
    TaskFinished,
    Withdraw,
    Withdrawn,
)
from pto_devkit.engine.reference.core import Child, ChildState, Core, InFlight, Task, spec_of


class Endings:
    """Invariant: after each call, every PENDING task has an unfinished producer or is delayed.

    A poisoned task ends only after all its producers have ended. Therefore a task that waits for
    the poisoned task also starts after these producers, and needs no edges to them.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._finished: deque[Task] = deque()
        """Ended tasks whose consumers were not notified yet, oldest first."""

    def settle(self, task: Task) -> None:
        """Choose the next state of a PENDING task, which may not have to wait any more."""
        self._settle(task)
        self._notify_consumers()

    def member_ended(self, task: Task, outcome: Outcome, cause: int) -> None:
        """Count a completed member. The last one ends the attempt."""
        task.has_begun = True
        self._count_member(task, outcome, cause)

    def member_never_began(self, task: Task, cause: int) -> None:
        """Count a group member that was lost before it began.

        If no member of the attempt began, the attempt does not use a retry; otherwise the attempt
        has failed.
        """
        self._count_member(task, Outcome.FAILED, cause)

    def leave_child(self, task: Task) -> None:
        """Return a RUNNING task to PENDING, because it must run again; end a poisoned task."""
        self._leave_child(task)
        self._notify_consumers()

    def fail(self, task: Task, cause: int) -> None:
        """End a task with its own failure."""
        self._fail(task, cause)
        self._notify_consumers()

    def poison(self, task: Task) -> None:
        """End a task because a producer failed or the run was cancelled."""
        self._poison(task)
        self._notify_consumers()

    def consider_early(self, task: Task) -> None:
        """Queue the task for early sending if it may be sent before its only producer has finished.

        Called whenever the condition may have become true: the task was submitted, waits again or
        has to run again; one unfinished producer remains; or a producer was sent (then for its
        consumers, in ascending order). Of the consumers without a pin, only the first is sent
        early.
        """
        core = self._core
        if not self._may_follow(task):
            return
        (number,) = task.unfinished
        producer = core.slots.tasks[number]
        if not spec_of(task).is_pinned:
            if producer.follower not in (NONE, task.number):
                return
            producer.follower = task.number
        core.queues.early.append(task.number)

    def _may_follow(self, task: Task) -> bool:
        """Return whether the task may be sent early: no groups, no retries, a poisoning edge."""
        core = self._core
        if core.slots.state(task) is not TaskState.PENDING or len(task.unfinished) != 1:
            return False
        (number,) = task.unfinished
        producer = core.slots.tasks[number]
        spec = spec_of(task)
        return (
            core.slots.state(producer) is TaskState.RUNNING
            and not producer.may_be_skipped
            and task.poison is None
            and task.cancelled is None
            and core.run_of(task).cancelled is None
            and task.producers[number].poisons
            and all(each.members == 1 and not spec_of(each).retries for each in (task, producer))
            and (spec.is_pinned or spec.kind == spec_of(producer).kind)
        )

    def _settle(self, task: Task) -> None:
        core = self._core
        if task.unfinished:
            self.consider_early(task)
        elif task.poison is not None or core.run_of(task).cancelled is not None:
            self._poison(task)
        elif task.cancelled is not None:
            core.slots.move(task, TaskEvent.SATISFY)
            self._fail(task, task.cancelled)
        elif not task.is_delayed:
            core.slots.move(task, TaskEvent.SATISFY)
            core.queues.add(task.number, is_group=task.members > 1)

    def _count_member(self, task: Task, outcome: Outcome, cause: int) -> None:
        task.ended += 1
        if outcome is Outcome.FAILED and task.failure is None:
            task.failure = cause
        task.was_skipped = task.was_skipped or outcome is Outcome.SKIPPED
        if task.ended == task.members:
            self._end_attempt(task)
        self._notify_consumers()

    def _end_attempt(self, task: Task) -> None:
        """End a task whose members have all ended. Its producer may be reported later."""
        if task.was_skipped:
            self._leave_child(task)
        elif task.unfinished:
            return
        elif task.poison is not None:
            self._poison(task)
        elif not task.has_begun:
            self._leave_child(task)
        elif task.failure is None:
            self._end(task, TaskEvent.FINISH, Result.COMPLETED)
        elif task.attempts > 0 and self._core.run_of(task).cancelled is None:
            task.attempts -= 1
            self._leave_child(task)
        else:
            self._fail(task, task.failure)

    def _leave_child(self, task: Task) -> None:
        if task.poison is not None:
            self._poison(task)
            return
        task.ended = 0
        task.failure = None
        task.has_begun = False
        task.was_skipped = task.may_be_skipped = False
        task.children = ()
        self._core.slots.move(task, TaskEvent.REPEAT)
        for number in task.consumers:
            self._core.queues.remove(number)
        self._settle(task)

    def _fail(self, task: Task, cause: int) -> None:
        self._core.roots[task.number] = task.number
        self._core.run_of(task).failed.append((task.number, cause))
        self._end(task, TaskEvent.FAIL, Result.FAILED, cause)

    def _poison(self, task: Task) -> None:
        core = self._core
        root = NONE if task.poison is None else task.poison
        run = core.run_of(task)
        cause = run.cancelled if run.cancelled is not None and root == NONE else NONE
        core.roots[task.number] = root
        run.poisoned.append((task.number, root))
        self._end(task, TaskEvent.POISON, Result.POISONED, cause, root)

    def _end(
        self,
        task: Task,
        event: TaskEvent,
        result: Result,
        cause: int = NONE,
        root: int = NONE,
    ) -> None:
        core = self._core
        core.slots.move(task, event)
        core.queues.remove(task.number)
        core.run_of(task).unfinished -= 1
        task.is_delayed = False
        core.instructions.append(TaskFinished(task.number, result, cause, root))
        if task.has_saved_regions:
            core.instructions.append(DropRegions(task.number))
        self._finished.append(task)

    def _notify_consumers(self) -> None:
        """Notify the consumers of ended tasks, breadth first: a task that ends here comes last."""
        while self._finished:
            task = self._finished.popleft()
            consumers, task.consumers = task.consumers, []
            for number in consumers:
                self._notify(self._core.slots.tasks[number], task)
            for number, reference in task.holds:
                self.drop(self._core.slots.tasks[number], reference)
            task.holds = []
            self.drop(task, Reference.SELF)

    def _notify(self, task: Task, producer: Task) -> None:
        task.unfinished.remove(producer.number)
        self._core.queues.remove(task.number)
        root = self._core.roots.get(producer.number)
        if root is not None and task.poison is None and task.producers[producer.number].poisons:
            task.poison = root
        if producer.children:
            task.last_producer = producer.children[0][0]
        state = self._core.slots.state(task)
        if state is TaskState.PENDING:
            self._settle(task)
        elif state is TaskState.RUNNING and task.ended == task.members:
            self._end_attempt(task)

    def drop(self, task: Task, reference: Reference) -> None:
        """Drop a reference. The last one consumes the task."""
        task.references[reference] -= 1
        if task.references.total() == 0:
            self._consume(task)

    def _consume(self, task: Task) -> None:
        """Free slot and slab. Outputs of a failed task stay known, so that they poison readers."""
        core = self._core
        has_failed = core.slots.state(task) is TaskState.FAILED
        core.slots.move(task, TaskEvent.RELEASE)
        kept = [entry for entry in task.entries if has_failed and entry.is_writer]
        core.regions.forget([entry for entry in task.entries if entry not in kept])
        if task.slab is not None:
            slab = task.slab
            ring = core.rings[slab.ring]
            size = slab.end - slab.begin
            core.regions.forget_memory(slab.address, slab.address + size)
            if ring.release(slab):
                core.freed_rings.add(ring.number)
        core.slots.give_back(task)


class Reports:
    """Handles the events Completion, ChildReady, ChildLost, Deadline, Withdraw and Withdrawn."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings

    def completed(self, event: Completion) -> None:
        """End the completed tasks. An impossible report raises an error and changes nothing."""
        child = self._core.children[event.child]
        self._check(child, event)
        while child.completed < event.count:
            frame = child.complete()
            if frame.task == NONE:
                continue
            is_last = frame.count == event.count
            outcome = event.outcome if is_last else Outcome.SUCCEEDED
            self._endings.member_ended(self._core.slots.tasks[frame.task], outcome, event.cause)

    def _check(self, child: Child, event: Completion) -> None:
        """Check a report before it is applied, so that nothing has changed if it raises."""
        if child.state is not ChildState.READY:
            raise ProtocolError(
                f"child {child.number} is {child.state.name} and reports frame {event.count}",
                child=child.number,
            )
        if not child.completed < event.count <= child.sent:
            raise ProtocolError(
                f"child {child.number} reports frame {event.count}; {child.completed} have "
                f"completed and {child.sent} were sent",
                child=child.number,
            )
        for frame in child.frames:
            if frame.count > event.count:
                break
            is_last = frame.count == event.count
            self._check_skip(child, frame, is_last and event.outcome is Outcome.SKIPPED)

    def _check_skip(self, child: Child, frame: InFlight, is_skip: bool) -> None:
        """Raise if a frame was skipped without a reason, or ran although its requirement failed.

        A child may skip a frame only if the driver asked for it, or if the frame's requirement
        failed or was lost. A child sees
        completions of other children before the engine does, so a requirement that was not reported
        yet may have succeeded or failed.
        """
        if frame.task == NONE:
            if is_skip:
                return
            raise ProtocolError(
                f"child {child.number} ran frame {frame.count}, which was withdrawn",
                child=child.number,
            )
        required = frame.requirement
        task = self._core.slots.tasks[frame.task]
        is_lost = required is not None and self._core.children[required.child].has_lost(
            required.count
        )
        may_skip = task.may_be_skipped or (
            required is not None and (is_lost or task.poison is not None or bool(task.unfinished))
        )
        may_run = task.poison is None and not is_lost
        if is_skip and not may_skip:
            raise ProtocolError(
                f"child {child.number} skipped frame {frame.count}, whose requirement {required} "
                "has not failed",
                child=child.number,
            )
        if not is_skip and not may_run:
            raise ProtocolError(
                f"child {child.number} ran frame {frame.count}, whose requirement {required} has "
                "failed",
                child=child.number,
            )

    def ready(self, number: int) -> None:
        """Mark the child as ready for frames."""
        child = self._core.children[number]
        if child.state is ChildState.READY:
            raise ProtocolError(f"child {number} is ready already", child=number)
        child.state = ChildState.READY

    def lost(self, event: ChildLost) -> None:
        """Fail or repeat the tasks of the frames in flight, oldest first."""
        child = self._core.children[event.child]
        if child.state is ChildState.LOST:
            raise ProtocolError(f"child {event.child} is lost already", child=event.child)
        if not child.completed <= event.started <= child.sent:
            raise ProtocolError(
                f"child {event.child} is lost with {event.started} frames begun; "
                f"{child.completed} have completed and {child.sent} were sent",
                child=event.child,
            )
        child.state = ChildState.EXPECTED if event.returns else ChildState.LOST
        child.cause = event.cause
        for frame in child.lose():
            if frame.task == NONE:
                continue
            task = self._core.slots.tasks[frame.task]
            cause = event.cause if frame.deadline is None else frame.deadline
            self._member_lost(task, cause, has_begun=frame.count <= event.started)

    def _member_lost(self, task: Task, cause: int, *, has_begun: bool) -> None:
        """Repeat a task if none of its members had begun; otherwise count the member as failed."""
        repeats = self._core.configuration.repeats_lost
        goes_again = repeats and not has_begun
        if task.poison is not None or (goes_again and task.members == 1):
            self._endings.leave_child(task)
        elif goes_again:
            self._endings.member_never_began(task, cause)
        else:
            if not repeats:
                task.attempts = 0
            self._endings.member_ended(task, Outcome.FAILED, cause)

    def withdraw(self, event: Withdraw) -> None:
        """Permit that a frame is skipped, and the frames in flight that require it."""
        tasks = self._core.slots.tasks
        skippable = [tasks[self._single(event.child, event.count).task]]
        while skippable:
            task = skippable.pop()
            task.may_be_skipped = True
            for number in task.consumers:
                self._core.queues.remove_early(number)
                if self._core.slots.state(tasks[number]) is TaskState.RUNNING:
                    skippable.append(tasks[number])

    def withdrawn(self, event: Withdrawn) -> None:
        """Take the task of a frame back, because the frame will not begin."""
        frame = self._single(event.child, event.count)
        task = self._core.slots.tasks[frame.task]
        if not task.may_be_skipped:
            raise ProtocolError(
                f"frame {event.count} of child {event.child} was not withdrawn",
                child=event.child,
            )
        frame.task = NONE
        frame.requirement = None
        self._endings.leave_child(task)

    def _single(self, number: int, count: int) -> InFlight:
        for frame in self._core.children[number].frames:
            is_sought = frame.count == count and frame.task != NONE
            if is_sought and self._core.slots.tasks[frame.task].members == 1:
                return frame
        raise ProtocolError(
            f"frame {count} of child {number} is not in flight, or its task is a group",
            child=number,
        )

    def deadline(self, event: Deadline) -> None:
        """Add ``EndChild`` if the frame that exceeded its time limit is still in flight."""
        child = self._core.children[event.child]
        if not 0 < event.count <= child.sent:
            raise ProtocolError(
                f"a deadline for frame {event.count} of child {event.child}, but only "
                f"{child.sent} frames were sent to it",
                child=event.child,
            )
        for frame in child.frames:
            if frame.count == event.count and frame.deadline is None:
                frame.deadline = event.cause
                self._core.instructions.append(EndChild(event.child, event.cause))
