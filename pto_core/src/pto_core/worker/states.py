"""The states of a task at level 3 and up, and the transitions between them.

This is the only definition: the engine changes the state of a task as :data:`TRANSITIONS` defines.
An event that has no row for the current state is refused and has no effect. docs/states.md is
generated from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pto_core.errors import InternalError


class State(IntEnum):
    """The state of a task."""

    FREE = 0
    PENDING = 1
    READY = 2
    RUNNING = 3
    COMPLETED = 4
    FAILED = 5
    CONSUMED = 6


class StateEvent(IntEnum):
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


Transitions = Mapping[tuple[State, StateEvent], State]

TRANSITIONS: Transitions = {
    (State.FREE, StateEvent.SUBMIT): State.PENDING,
    (State.FREE, StateEvent.ALLOCATE): State.COMPLETED,
    (State.PENDING, StateEvent.SATISFY): State.READY,
    (State.PENDING, StateEvent.DISPATCH_EARLY): State.RUNNING,
    (State.PENDING, StateEvent.POISON): State.FAILED,
    (State.READY, StateEvent.DISPATCH): State.RUNNING,
    (State.READY, StateEvent.FAIL): State.FAILED,
    (State.READY, StateEvent.POISON): State.FAILED,
    (State.RUNNING, StateEvent.FINISH): State.COMPLETED,
    (State.RUNNING, StateEvent.REPEAT): State.PENDING,
    (State.RUNNING, StateEvent.FAIL): State.FAILED,
    (State.RUNNING, StateEvent.POISON): State.FAILED,
    (State.COMPLETED, StateEvent.RELEASE): State.CONSUMED,
    (State.FAILED, StateEvent.RELEASE): State.CONSUMED,
    (State.CONSUMED, StateEvent.RECYCLE): State.FREE,
}

STATE_MEANINGS = {
    State.FREE: "the slot holds no task",
    State.PENDING: "waits for producers that have not finished",
    State.READY: "waits for a child with free space; a group needs one for each member",
    State.RUNNING: "sent to its children; if sent early, it may wait there for its requirement",
    State.COMPLETED: "all its members have succeeded, or it is an allocation",
    State.FAILED: "a member has failed, or the task was poisoned and did not run",
    State.CONSUMED: "the last reference was dropped; its slab is freed after all older slabs",
}

EVENT_MEANINGS = {
    StateEvent.SUBMIT: "its slot and its slab are taken",
    StateEvent.ALLOCATE: "the slot and the slab of a buffer that no task writes are taken",
    StateEvent.SATISFY: "its last producer has finished",
    StateEvent.DISPATCH: "all its members are sent",
    StateEvent.DISPATCH_EARLY: "it is sent with its only unfinished producer as requirement",
    StateEvent.FINISH: "its last member has ended, and all have succeeded",
    StateEvent.REPEAT: "it failed or was lost with its child, and runs again",
    StateEvent.FAIL: "its last member has ended and one has failed, or no child is left for it",
    StateEvent.POISON: "a producer has failed, or the run was cancelled",
    StateEvent.RELEASE: "its last reference is dropped",
    StateEvent.RECYCLE: "its slot is free again",
}

REFERENCE_MEANINGS = {
    Reference.SELF: "the task has not finished",
    Reference.SCOPE: "the scope in which it was submitted is open",
    Reference.CONSUMER: "a consumer has not finished; one reference for each",
    Reference.OWNER: "a task that uses its slab has not finished; one reference for each",
}


def follow(state: State, event: StateEvent, transitions: Transitions = TRANSITIONS) -> State:
    """Return the next state. Raises :class:`InternalError` if the table has no row for the pair."""
    target = transitions.get((state, event))
    if target is None:
        raise InternalError(f"{event.name} cannot happen to a task that is {state.name}")
    return target
