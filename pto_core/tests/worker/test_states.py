"""For each state and event, the next state is the one in the table, or the event raises."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pto_core.errors import InternalError
from pto_core.worker import states_header, states_page
from pto_core.worker.states import (
    EVENT_MEANINGS,
    REFERENCE_MEANINGS,
    STATE_MEANINGS,
    TRANSITIONS,
    Reference,
    TaskEvent,
    TaskState,
)
from pto_devkit.engine.reference.core import Slots

PAGE = Path(__file__).parents[3] / "docs" / "states.md"
HEADER = Path(__file__).parents[2] / "native" / "worker" / "engine" / "states.hpp"
# A copy of the table, written by hand: a change of the table must be made here too.
ARROWS = """
FREE SUBMIT PENDING
FREE ALLOCATE COMPLETED
PENDING SATISFY READY
PENDING DISPATCH_EARLY RUNNING
PENDING POISON FAILED
READY DISPATCH RUNNING
READY FAIL FAILED
READY POISON FAILED
RUNNING FINISH COMPLETED
RUNNING REPEAT PENDING
RUNNING FAIL FAILED
RUNNING POISON FAILED
COMPLETED RELEASE CONSUMED
FAILED RELEASE CONSUMED
CONSUMED RECYCLE FREE
"""


def test_the_table_is_as_decided():
    rows = [line.split() for line in ARROWS.split("\n") if line]
    decided = {(TaskState[a], TaskEvent[b]): TaskState[c] for a, b, c in rows}
    assert dict(TRANSITIONS) == decided


# Invariant: A task of a Worker changes its state only as the table states. Any other event is
# refused and changes nothing.
@pytest.mark.parametrize(("state", "event"), list(itertools.product(TaskState, TaskEvent)))
def test_each_pair_changes_the_state_or_raises(state: TaskState, event: TaskEvent) -> None:
    slots = Slots(TRANSITIONS)
    task = slots.take(None)
    slots.states[task.slot] = state
    if (state, event) in TRANSITIONS:
        slots.move(task, event)
        assert slots.state(task) is TRANSITIONS[state, event]
        return
    with pytest.raises(InternalError, match=f"{event.name} cannot happen to a task that is") as got:
        slots.move(task, event)
    assert any("task 0" in note for note in got.value.__notes__)
    assert slots.states == [state]
    assert slots.tasks == {0: task}


def test_every_state_can_be_reached_and_left():
    assert {state for state, _ in TRANSITIONS} == set(TaskState)
    assert set(TRANSITIONS.values()) == set(TaskState)
    assert {event for _, event in TRANSITIONS} == set(TaskEvent)


def test_every_state_and_event_has_a_meaning():
    assert set(STATE_MEANINGS) == set(TaskState)
    assert set(EVENT_MEANINGS) == set(TaskEvent)
    assert set(REFERENCE_MEANINGS) == set(Reference)


def test_the_page_equals_the_tables():
    page = PAGE.read_text()
    assert states_page.with_part(page) == page, (
        "docs/states.md is not fresh; write it with python -m pto_core.worker.states_page"
    )
    assert page.endswith(states_page.part())


def test_a_stale_page_is_found():
    page = PAGE.read_text()
    stale = page.replace("| `READY` | | | | `RUNNING` |", "| `READY` | | | | |")
    assert stale != page
    assert states_page.with_part(stale) == page


def test_the_native_header_equals_the_tables():
    assert HEADER.read_text() == states_header.header(), (
        f"{HEADER.name} is not fresh; write it with python -m pto_core.worker.states_header"
    )
