"""A change of any row of the transition table changes the recorded events of the engine."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pto_core.errors import PtoError
from pto_core.worker.states import TRANSITIONS, TaskEvent, TaskState, Transitions
from pto_devkit.abi import Tag
from pto_devkit.engine import Configuration, NativeEngine, ReferenceEngine
from pto_devkit.engine.interface import (
    Cancel,
    ChildLost,
    ChildReady,
    Completion,
    Dispatch,
    Event,
    Hazards,
    Kind,
    Member,
    Outcome,
    RunBegin,
    RunEnd,
    Submit,
    Tensor,
)
from pto_devkit.schedulers.programs import ProgramWriter
from pto_devkit.schedulers.world import Chances, SchedulerWorld, configuration_of

Recording = tuple[Configuration, Sequence[Event]]
SEEDS = range(12)


def recorded(seed: int) -> Recording:
    numbers = random.Random(seed)
    program = ProgramWriter(numbers, Hazards.FULL, tasks=25).write()
    configuration = configuration_of(program, ring_size=1 << 20, window=3, repeats_lost=True)
    chances = Chances(loss=0.02, cancel=0.002)
    world = SchedulerWorld(program, configuration, ReferenceEngine(configuration), numbers, chances)
    world.run()
    return configuration, world.events


def written(configuration: Configuration) -> Recording:
    """Return events that random programs rarely have: a cancelled ready task, all children lost."""
    memory = (Member((Tensor(0, 8, Tag.OUTPUT),)),)  # keeps the ended task in its scope
    task = Submit(Kind.SUB, memory)
    follower = Submit(Kind.SUB, memory, after=(1,))
    return configuration, [
        RunBegin(),
        task,
        Cancel(9),
        RunEnd(),
        RunBegin(),
        ChildReady(0),
        task,
        Dispatch(),
        follower,
        Dispatch(),
        task,
        Completion(0, 1, Outcome.FAILED, 7),
        Completion(0, 2, Outcome.SKIPPED),
        follower,
        ChildLost(0, 8, 2),
        *(ChildLost(child, 8, 0) for child in range(1, len(configuration.children))),
        Dispatch(),
        RunEnd(),
    ]


def differs(recording: Recording, transitions: Transitions) -> bool:
    """Return whether the native engine differs from a reference engine with other transitions."""
    configuration, events = recording
    engine = NativeEngine(configuration)
    mutant = ReferenceEngine(configuration, transitions=transitions)
    for event in events:
        expected = engine.handle(event)
        try:
            if mutant.handle(event) != expected or mutant.snapshot() != engine.snapshot():
                return True
        except (PtoError, KeyError, ValueError):
            return True
    return False


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    random_ones = [recorded(seed) for seed in SEEDS]
    configuration = next(c for c, _ in random_ones if c.children[0].kind is Kind.SUB)
    return [written(configuration), *random_ones]


def test_unchanged_tables_never_differ(recordings: list[Recording]) -> None:
    assert not any(differs(recording, dict(TRANSITIONS)) for recording in recordings)


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_a_changed_row_is_found(
    recordings: list[Recording],
    state: TaskState,
    event: TaskEvent,
) -> None:
    row = (state, event)
    without = {pair: target for pair, target in TRANSITIONS.items() if pair != row}
    mutants = [
        without,
        *({**TRANSITIONS, row: to} for to in TaskState if to is not TRANSITIONS[row]),
    ]
    for mutant in mutants:
        found = any(differs(recording, mutant) for recording in recordings)
        assert found, f"no recording shows that {row} was changed to {mutant.get(row)}"
