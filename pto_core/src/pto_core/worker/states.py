"""The states of a task at level 3 and up, and the transitions between them.

This is the only definition: the engine changes the state of a task as :data:`TRANSITIONS` defines.
An event that has no row for the current state is refused and has no effect. docs/states.md is
generated from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pto_core.errors import InternalError


class TaskState(IntEnum):
    """The state of a task."""

    FREE = 0
    PENDING = 1
    READY = 2
    RUNNING = 3
    COMPLETED = 4
    FAILED = 5
    CONSUMED = 6


class TaskEvent(IntEnum):
    """An event that changes the state of a task."""

    SUBMIT = 0
    ALLOCATE = 1
    SATISFY = 2
    DISPATCH = 3
    DISPATCH_EARLY = 4
    FINISH = 5
    REPEAT = 6
    FAIL = 7
    POISON = 8
    RELEASE = 9
    RECYCLE = 10


class Reference(IntEnum):
    """A kind of reference to a task. The slot is consumed when its last reference is dropped."""

    SELF = 0
    SCOPE = 1
    CONSUMER = 2
    OWNER = 3


Transitions = Mapping[tuple[TaskState, TaskEvent], TaskState]

TRANSITIONS: Transitions = {
    (TaskState.FREE, TaskEvent.SUBMIT): TaskState.PENDING,
    (TaskState.FREE, TaskEvent.ALLOCATE): TaskState.COMPLETED,
    (TaskState.PENDING, TaskEvent.SATISFY): TaskState.READY,
    (TaskState.PENDING, TaskEvent.DISPATCH_EARLY): TaskState.RUNNING,
    (TaskState.PENDING, TaskEvent.POISON): TaskState.FAILED,
    (TaskState.READY, TaskEvent.DISPATCH): TaskState.RUNNING,
    (TaskState.READY, TaskEvent.FAIL): TaskState.FAILED,
    (TaskState.READY, TaskEvent.POISON): TaskState.FAILED,
    (TaskState.RUNNING, TaskEvent.FINISH): TaskState.COMPLETED,
    (TaskState.RUNNING, TaskEvent.REPEAT): TaskState.PENDING,
    (TaskState.RUNNING, TaskEvent.FAIL): TaskState.FAILED,
    (TaskState.RUNNING, TaskEvent.POISON): TaskState.FAILED,
    (TaskState.COMPLETED, TaskEvent.RELEASE): TaskState.CONSUMED,
    (TaskState.FAILED, TaskEvent.RELEASE): TaskState.CONSUMED,
    (TaskState.CONSUMED, TaskEvent.RECYCLE): TaskState.FREE,
}

STATE_MEANINGS = {
    TaskState.FREE: "the slot holds no task",
    TaskState.PENDING: "waits for producers that have not finished, or before its next attempt",
    TaskState.READY: "waits for a child with free space; a group needs one for each member",
    TaskState.RUNNING: "sent to its children; if sent early, it may wait there for its requirement",
    TaskState.COMPLETED: "all its members have succeeded, or it is an allocation",
    TaskState.FAILED: "a member has failed, or the task was poisoned and did not run",
    TaskState.CONSUMED: "the last reference was dropped; its slab is freed after all older slabs",
}

EVENT_MEANINGS = {
    TaskEvent.SUBMIT: "its slot and its slab are taken",
    TaskEvent.ALLOCATE: "the slot and the slab of a buffer that no task writes are taken",
    TaskEvent.SATISFY: "its last producer has finished, or the wait before its next attempt has",
    TaskEvent.DISPATCH: "all its members are sent",
    TaskEvent.DISPATCH_EARLY: "it is sent with its only unfinished producer as requirement",
    TaskEvent.FINISH: "its last member has ended, and all have succeeded",
    TaskEvent.REPEAT: "it failed or was lost with its child, and runs again",
    TaskEvent.FAIL: "its last member has ended and one has failed, or no child is left for it",
    TaskEvent.POISON: "a producer has failed, or the run was cancelled",
    TaskEvent.RELEASE: "its last reference is dropped",
    TaskEvent.RECYCLE: "its slot is free again",
}

REFERENCE_MEANINGS = {
    Reference.SELF: "the task has not finished",
    Reference.SCOPE: "it allocated memory in a scope that is open",
    Reference.CONSUMER: "a consumer has not finished; one reference for each",
    Reference.OWNER: "a task that uses its slab has not finished; one reference for each",
}


def follow(state: TaskState, event: TaskEvent, transitions: Transitions = TRANSITIONS) -> TaskState:
    """Return the next state. Raises :class:`InternalError` if the table has no row for the pair."""
    target = transitions.get((state, event))
    if target is None:
        raise InternalError(f"{event.name} cannot happen to a task that is {state.name}")
    return target
