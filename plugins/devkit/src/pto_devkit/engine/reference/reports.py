"""Handle the reports of children: completions, and the loss of a child."""

from __future__ import annotations

from pto_core.errors import ProtocolError
from pto_devkit.engine.events import ChildLost, Completion, Deadline, Outcome
from pto_devkit.engine.instructions import EndChild
from pto_devkit.engine.reference.children import Child, ChildState, InFlight
from pto_devkit.engine.reference.core import Core
from pto_devkit.engine.reference.endings import Endings
from pto_devkit.engine.reference.slots import Task


class Reports:
    """Handles the events Completion, ChildReady, ChildLost and Deadline."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings

    def completed(self, event: Completion) -> None:
        """End the completed tasks. An impossible report raises an error and changes nothing."""
        child = self._core.children[event.child]
        self._check(child, event)
        while child.completed < event.count:
            frame = child.complete()
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

        A child may skip a frame only if the frame's requirement failed or was lost. A child sees
        completions of other children before the engine does, so a requirement that was not reported
        yet may have succeeded or failed.
        """
        required = frame.requirement
        task = self._core.slots.tasks[frame.task]
        is_lost = required is not None and self._core.children[required.child].has_lost(
            required.count
        )
        may_skip = required is not None and (
            is_lost or task.poison is not None or bool(task.unfinished)
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
