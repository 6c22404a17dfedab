"""Random programs on simulated children: right results, order and poisoning; no task is left."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from pto_devkit import SchedulerSubject
from pto_devkit.engine import ReferenceEngine
from pto_devkit.engine.interface import Hazards
from pto_devkit.schedulers.world import (
    CALM,
    CANCELLED,
    DELAYED,
    MOVED,
    PARTLY_CANCELLED,
    ROUGH,
    Chances,
    SchedulerWorld,
    expect_cancel,
    expect_end,
    expect_failures,
    expect_poison,
    expect_retries,
    expect_values,
)

SEEDS = st.integers(0, 2**32 - 1)
REFERENCE = SchedulerSubject.load("least_loaded")


@pytest.fixture
def examples(pytestconfig: pytest.Config) -> int:
    return 5000 if pytestconfig.getoption("full") else 50


def world_of(
    seed: int, hazards: Hazards, chances: Chances, ring_slabs: tuple[int, ...] = (4, 6, 16, 4096)
) -> SchedulerWorld:
    return REFERENCE.run(random.Random(seed), hazards, chances, ring_slabs=ring_slabs)


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


# Invariant: A slot of a Worker lives exactly as long as it has a SELF, SCOPE, CONSUMER or
# OWNER reference. No run leaves a slot alive.
# Invariant: A task starts after all its producers, even if it was sent early and waits in its
# child.
def test_full_hazards_produce_the_sequential_result(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, CALM)
        expect_end(world)
        expect_poison(world)
        expect_values(world)
        expect_failures(world)

    check()


# Invariant: A failure poisons exactly the tasks that read its outputs or wait for it explicitly,
# and their descendants, independent of timing.
# Invariant: The loss of a child uses up `retries` only for tasks that had begun.
def test_lost_children_and_deadlines_leave_the_rest_right(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, ROUGH)
        expect_end(world)
        expect_poison(world)
        expect_values(world)
        expect_retries(world)

    check()


def test_raw_hazards_keep_the_order_of_reads_after_writes(examples):
    @each_seed(examples)
    @given(SEEDS, st.sampled_from([CALM, ROUGH]))
    def check(seed: int, chances: Chances) -> None:
        world = world_of(seed, Hazards.RAW, chances)
        expect_end(world)
        expect_poison(world)

    check()


def test_a_cancelled_run_ends_and_leaves_nothing(examples):
    @each_seed(examples)
    @given(SEEDS, st.sampled_from(list(Hazards)))
    def check(seed: int, hazards: Hazards) -> None:
        world = world_of(seed, hazards, CANCELLED)
        expect_end(world)
        expect_cancel(world)

    check()


# Invariant: A frame that was withdrawn does not run, and its task runs once, in another frame.
def test_withdrawn_tasks_run_elsewhere(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, MOVED)
        expect_end(world)
        expect_poison(world)
        expect_values(world)
        expect_failures(world)

    check()


def test_cancelled_tasks_fail_and_poison_their_readers(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, PARTLY_CANCELLED)
        expect_end(world)
        expect_poison(world)
        expect_values(world)

    check()


# Invariant: A task that waits before its next attempt is not sent before the wait has ended, and
# other tasks run meanwhile.
def test_delayed_tasks_run_again_after_their_delay(examples):
    @each_seed(examples)
    @given(SEEDS)
    def check(seed: int) -> None:
        world = world_of(seed, Hazards.FULL, DELAYED)
        expect_end(world)
        expect_poison(world)
        expect_values(world)

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
def test_equal_events_produce_equal_answers():
    """Another test compares the native engine with the reference engine on the same programs."""
    for seed in range(30):
        world = world_of(seed, Hazards.FULL, ROUGH)
        again = ReferenceEngine(world.configuration)
        for event, answer in zip(world.events, world.answers, strict=True):
            assert again.handle(event) == answer
