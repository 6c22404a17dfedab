"""Random programs in a random world: right answers, right order, exact poison, nothing left."""

from __future__ import annotations

import random

import pytest
from hierarchy_programs import Author, sequential
from hierarchy_world import Chances, World, configuration_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pto_core.hierarchy.engine import ReferenceEngine
from pto_core.hierarchy.engine.events import Dispatch, Event, Hazards
from pto_core.hierarchy.engine.instructions import Instruction, Result, TaskFinished

SEEDS = st.integers(0, 2**32 - 1)
CALM = Chances()
ROUGH = Chances(loss=0.02, deadline=0.01)
CANCELLED = Chances(loss=0.01, cancel=0.02)


@pytest.fixture
def examples(pytestconfig: pytest.Config) -> int:
    return 5000 if pytestconfig.getoption("full") else 50


class Validated(ReferenceEngine):
    """Looks at its invariants after every event."""

    def handle(self, event: Event) -> list[Instruction]:
        instructions = super().handle(event)
        self.validate()
        return instructions


def world_of(
    seed: int, hazards: Hazards, chances: Chances, ring_slabs: tuple[int, ...] = (4, 6, 16, 4096)
) -> World:
    numbers = random.Random(seed)
    program = Author(numbers, hazards, tasks=numbers.randint(1, 40)).write()
    configuration = configuration_of(
        program,
        ring_size=1024 * numbers.choice(ring_slabs),
        window=numbers.choice([1, 2, 5, 64]),
        repeats_lost=numbers.random() < 0.5,
    )
    world = World(program, Validated(configuration), numbers, chances)
    world.run()
    return world


def submitted(world: World) -> list[int]:
    return sorted(world.plans)


def check_end(world: World) -> None:
    """The run finished once, told every ending once, and nothing is alive."""
    run = world.finished
    assert run is not None
    assert run.tasks == len(world.plans)
    assert set(world.results) == {n for n, plan in world.plans.items() if plan.members}
    failed = {task for task, _ in run.failed}
    poisoned = {task for task, _ in run.poisoned}
    assert failed == {n for n, result in world.results.items() if result is Result.FAILED}
    assert poisoned == {n for n, result in world.results.items() if result is Result.POISONED}
    snapshot = world.engine.snapshot()
    assert snapshot["tasks"] == {}
    assert snapshot["scopes"] == []
    assert all(ring["used"] == 0 for ring in snapshot["rings"])
    assert not world.saved, "copies of regions were not dropped"


def check_poison(world: World) -> None:
    run = world.finished
    assert run is not None
    failed = {task for task, _ in run.failed}
    plans = [world.plans[number] for number in submitted(world)]
    assert {task for task, _ in run.poisoned} == world.meaning.poisoned(plans, failed)
    for _, root in run.poisoned:
        assert root in failed


def check_answer(world: World) -> None:
    """What ran read what it would have read in a sequential run; so does the user at the end."""
    plans = [world.plans[number] for number in submitted(world)]
    spoiled = {n for n, result in world.results.items() if result is not Result.COMPLETED}
    memory, seen = sequential(plans, spoiled)
    for plan in plans:
        if plan.members and plan.number not in spoiled:
            found = world.seen[plan.number]
            assert tuple(found[m] for m in range(len(plan.members))) == seen[plan.number]
    for cell, content in memory.items():
        if cell[0] < world.program.user_buffers and content is not None:
            assert world._read(cell) == content


def check_charges(world: World) -> None:
    """No task fails for attempts that had not begun, unless nobody is left that could run it."""
    if not world.engine._core.configuration.repeats_lost:
        return
    for event, answer in zip(world.events, world.answers, strict=True):
        for each in answer:
            is_failure = isinstance(each, TaskFinished) and each.result is Result.FAILED
            if is_failure and not isinstance(event, Dispatch):
                began = len(world.begun.get(each.task, ()))
                assert began > world.plans[each.task].retries, f"task {each.task} began {began}"


def check_failures(world: World) -> None:
    """Without losses exactly those fail that fail more often than they may."""
    run = world.finished
    assert run is not None
    poisoned = {task for task, _ in run.poisoned}
    expected = {n for n, plan in world.plans.items() if plan.failures > plan.retries} - poisoned
    assert {task for task, _ in run.failed} == expected


def each_seed(examples: int):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# Invariant: A slot of the hierarchy lives exactly as long as it has a SELF, SCOPE, CONSUMER or
# OWNER reference. No run leaves a slot alive.
# Invariant: A task starts after all its producers, even if it was sent early and waits in its
# child.
def test_full_hazards_give_the_sequential_answer(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, CALM)
        check_end(world)
        check_poison(world)
        check_answer(world)
        check_failures(world)

    check()


# Invariant: A failure poisons exactly the tasks that read its outputs or wait for it explicitly,
# and their descendants, independent of timing.
# Invariant: The loss of a child uses up `retries` only for tasks that had begun.
def test_lost_children_and_deadlines_leave_the_rest_right(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, ROUGH)
        check_end(world)
        check_poison(world)
        check_answer(world)
        check_charges(world)

    check()


def test_raw_hazards_keep_the_order_of_reads_after_writes(examples):
    @each_seed(examples)
    @given(SEEDS, st.sampled_from([CALM, ROUGH]))
    def check(seed: int, chances: Chances) -> None:
        world = world_of(seed, Hazards.RAW, chances)
        check_end(world)
        check_poison(world)

    check()


def test_a_cancelled_run_ends_and_leaves_nothing(examples):
    @each_seed(examples)
    @given(SEEDS, st.sampled_from(list(Hazards)))
    def check(seed: int, hazards: Hazards) -> None:
        check_end(world_of(seed, hazards, CANCELLED))

    check()


def test_blocked_submits_are_proven_deadlocks_with_numbers():
    found = 0
    for seed in range(40):
        world = world_of(seed, Hazards.RAW, CALM, (6,))
        proof = world.deadlock
        if proof is not None:
            found += 1
            assert proof.needed > proof.size == 6 * 1024
            assert proof.oldest_task in world.plans
            assert proof.open_scope >= 0
            error = proof.error()
            assert error.settings == {"heap_ring_size": proof.needed}
            assert "heap_ring_size" in str(error)
            assert world_of(seed, Hazards.RAW, CALM, (4096,)).deadlock is None
    assert found > 3


# Invariant: The same events give the same instructions.
def test_the_same_events_give_the_same_answers():
    """Which a native engine is held to as well."""
    for seed in range(30):
        world = world_of(seed, Hazards.FULL, ROUGH)
        again = ReferenceEngine(world.engine._core.configuration)
        for event, answer in zip(world.events, world.answers, strict=True):
            assert again.handle(event) == answer
