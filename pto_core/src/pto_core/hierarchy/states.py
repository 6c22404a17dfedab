"""The states of a task at level 3 and up, and what may follow what.

The only place that says so: engines move a task by asking :data:`TRANSITIONS`, a pair that has no
row is refused and changes nothing. docs/states.md is generated from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pto_core.errors import InternalError


class State(IntEnum):
    """Where a task is."""

    FREE = 0
    PENDING = 1
    READY = 2
    RUNNING = 3
    COMPLETED = 4
    FAILED = 5
    CONSUMED = 6


class StateEvent(IntEnum):
    """What can happen to a task."""

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
    """What keeps a slot alive. The last reference that is dropped consumes the slot."""

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
    State.READY: "waits for a child with room; a group for as many as it has members",
    State.RUNNING: "sent to its children; sent early, it may still wait for its requirement there",
    State.COMPLETED: "all its members have succeeded, or it is an allocation",
    State.FAILED: "a member has failed, or a producer has: it is poisoned then and never ran",
    State.CONSUMED: "the last reference is gone; its slab is free once all older ones are",
}

EVENT_MEANINGS = {
    StateEvent.SUBMIT: "it gets its slot and its slab",
    StateEvent.ALLOCATE: "the same, for a buffer that no task has written",
    StateEvent.SATISFY: "no producer is unfinished any more",
    StateEvent.DISPATCH: "its members are sent, all at once",
    StateEvent.DISPATCH_EARLY: "it is sent with its only unfinished producer as requirement",
    StateEvent.FINISH: "its last member has ended, and all have succeeded",
    StateEvent.REPEAT: "it failed or was lost with its child, and is to run again",
    StateEvent.FAIL: "its last member has ended and one has failed, or no child is left for it",
    StateEvent.POISON: "a producer has failed, or the run was cancelled",
    StateEvent.RELEASE: "its last reference is dropped",
    StateEvent.RECYCLE: "its slot goes back to the free ones",
}

REFERENCE_MEANINGS = {
    Reference.SELF: "the task has not finished",
    Reference.SCOPE: "the scope in which it was submitted is open",
    Reference.CONSUMER: "a task that reads what it wrote has not finished; one each",
    Reference.OWNER: "a task that names a buffer of its slab has not finished; one each",
}


def follow(state: State, event: StateEvent, transitions: Transitions = TRANSITIONS) -> State:
    """Give the state that follows; raises :class:`InternalError` for a pair without a row."""
    target = transitions.get((state, event))
    if target is None:
        raise InternalError(f"{event.name} cannot happen to a task that is {state.name}")
    return target
