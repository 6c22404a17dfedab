"""The contract of engines, checked with random programs on simulated children."""

from __future__ import annotations

from collections.abc import Sequence

from pto_core.errors import CapacityError, ProtocolError, PtoError, UsageError
from pto_core.hierarchy.engine import (
    ChildConfiguration,
    Configuration,
    ReferenceEngine,
    RingConfiguration,
    least_loaded,
)
from pto_core.hierarchy.engine.events import (
    Allocate,
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
    ScopeEnd,
    Submit,
    Tag,
    Tensor,
)
from pto_core.hierarchy.engine.instructions import Send
from pto_core.interfaces import EnginePolicy, Policy, Scheduler
from pto_devkit.failure import ContractError, expect
from pto_devkit.random_seed import random_numbers
from pto_devkit.schedulers.subject import SchedulerSubject
from pto_devkit.schedulers.verdicts import (
    expect_cancel,
    expect_end,
    expect_failures,
    expect_poison,
    expect_retries,
    expect_values,
)
from pto_devkit.schedulers.world import Chances

CALM = Chances()
ROUGH = Chances(loss=0.02, deadline=0.01)
HARSH = Chances(loss=0.12, join=0.2, deadline=0.02)
CANCELLED = Chances(loss=0.01, cancel=0.02)

_RUNS = 25
_WINDOW = 2
_RING_BYTES = 1 << 12
_SUB = Submit(Kind.SUB)
# Events that break a rule. Each is sent in a run whose only child has completed one of two frames.
_REFUSED: Sequence[tuple[Event, type[PtoError]]] = (
    (RunBegin(), UsageError),
    (ScopeEnd(), UsageError),
    (Submit(Kind.SUB, pins=(1,)), UsageError),
    (Submit(Kind.SUB, retries=-1), UsageError),
    (Submit(Kind.SUB, after=(7,)), UsageError),
    (Submit(Kind.SUB, (Member((Tensor(0, 8, Tag.INOUT),)),)), UsageError),
    (Submit(Kind.SUB, (Member(), Member())), UsageError),
    (Allocate(_RING_BYTES + 1), CapacityError),
    (Completion(0, 3), ProtocolError),
    (Completion(0, 1, Outcome.FAILED, 4), ProtocolError),
    (Completion(1, 1), ProtocolError),
)


def check_sequential_answer(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require the values of a sequential run under full hazards, and only expected failures."""
    with random_numbers(seed) as numbers:
        for _ in range(_RUNS):
            world = scheduler.run(numbers, Hazards.FULL, CALM)
            expect_end(world)
            expect_poison(world)
            expect_values(world)
            expect_failures(world)


def check_lost_children(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that only tasks affected by lost children or deadlines fail or run again."""
    with random_numbers(seed) as numbers:
        for _ in range(2 * _RUNS):
            world = scheduler.run(numbers, Hazards.FULL, HARSH)
            expect_end(world)
            expect_poison(world)
            expect_values(world)
            expect_retries(world)


def check_raw_hazards(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require under raw hazards that a task runs after earlier writers of the tiles it reads."""
    with random_numbers(seed) as numbers:
        for _ in range(_RUNS):
            world = scheduler.run(numbers, Hazards.RAW, numbers.choice([CALM, ROUGH]))
            expect_end(world)
            expect_poison(world)


def check_cancelled_runs(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that a cancelled run sends no more tasks, ends, and leaves no task alive."""
    with random_numbers(seed) as numbers:
        for _ in range(_RUNS):
            world = scheduler.run(numbers, numbers.choice(list(Hazards)), CANCELLED)
            expect_cancel(world)
            expect_end(world)


def check_deadlocks(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require a proof with the right numbers if a heap ring is full and no task can free space."""
    found = 0
    with random_numbers(seed) as numbers:
        for _ in range(2 * _RUNS):
            world = scheduler.run(numbers, Hazards.RAW, CALM, ring_slabs=(6,))
            proof = world.deadlock
            if proof is None:
                continue
            found += 1
            expect(
                proof.size == 6 * 1024, f"the proof has a size other than {6 * 1024} bytes: {proof}"
            )
            expect(proof.held + proof.requested > 0 and proof.needed > proof.size, f"{proof}")
            expect(proof.oldest_task in world.plans, f"the proof names an unknown task: {proof}")
            expect(proof.open_scope >= 0, f"the proof names no open scope: {proof}")
        expect(found, f"none of {2 * _RUNS} programs on small rings had a proof of a deadlock")


def check_refusals_change_nothing(scheduler: SchedulerSubject) -> None:
    """Require that an event that breaks a rule raises the right error and changes nothing."""
    engine = scheduler.engine(_small())
    _refuse(engine, _SUB, UsageError)
    _refuse(engine, RunEnd(), UsageError)
    events: list[Event] = [ChildReady(0), RunBegin(), _SUB, _SUB, Dispatch(), Completion(0, 1)]
    for event in events:
        engine.handle(event)
    for event, error in _REFUSED:
        _refuse(engine, event, error)
    engine.handle(RunEnd())
    engine.handle(Completion(0, 2))
    left = engine.snapshot()["tasks"]
    expect(left == {}, f"tasks are left after the run: {left}")


def check_engines_are_apart(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that two engines of the plugin share no state."""
    other = scheduler.engine(_small())
    before = other.snapshot()
    with random_numbers(seed) as numbers:
        scheduler.run(numbers, Hazards.FULL, CALM)
    expect(other.snapshot() == before, "a run on one engine changed another engine")


def check_policy_is_used(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that the engine asks the policy where to run a single task without a pin.

    A policy that has the method ``pick`` receives the number of the task.
    """
    asked: list[tuple[list[tuple[int, int]], int]] = []
    tasks: list[int] = []

    def last(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        asked.append((list(candidates), preferred))
        return candidates[-1][0]

    class Last:
        def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
            tasks.append(task)
            return last(candidates, preferred)

    for policy in (last, Last()):
        asked.clear()
        sent = _sent(scheduler, policy)
        expect(len(asked) == len(sent), f"{len(asked)} calls of the policy for {len(sent)} tasks")
        for candidates, _ in asked:
            numbers = [child for child, _ in candidates]
            expect(
                numbers == sorted(set(numbers))
                and all(0 <= load < _WINDOW for _, load in candidates),
                f"the policy received {candidates}, with a window of {_WINDOW} frames",
            )
    expect(
        tasks == [each.task for each in sent],
        f"pick received the tasks {tasks}, but {[each.task for each in sent]} were sent",
    )


def _sent(scheduler: SchedulerSubject, policy: Policy | EnginePolicy) -> list[Send]:
    """Run tasks with a policy that picks the last candidate; return the instructions to send."""
    count = 3
    engine = scheduler.engine(_small(count, _WINDOW), policy)
    for child in range(count):
        engine.handle(ChildReady(child))
    engine.handle(RunBegin())
    for _ in range(_WINDOW * count):
        engine.handle(_SUB)
    sent = [each for each in engine.handle(Dispatch()) if isinstance(each, Send)]
    children = [each.child for each in sent]
    expect(
        children == [2, 2, 1, 1, 0, 0],
        f"the tasks were sent to {children}, not to the last candidate",
    )
    return sent


def check_reference_order(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require the same result and snapshot as from the reference engine after each event."""
    with random_numbers(seed) as numbers:
        for _ in range(_RUNS):
            hazards, chances = numbers.choice(list(Hazards)), numbers.choice([ROUGH, CANCELLED])
            world = scheduler.run(numbers, hazards, chances, validates=False)
            reference = ReferenceEngine(world.configuration, policy=least_loaded)
            again = scheduler.engine(world.configuration)
            for event, answer in zip(world.events, world.answers, strict=True):
                expected = reference.handle(event)
                expect(answer == expected, f"{event}: {answer}, expected {expected}")
                again.handle(event)
                found, wanted = again.snapshot(), reference.snapshot()
                parts = [part for part in wanted if found.get(part) != wanted[part]]
                expect(not parts, f"after {event} these parts of the snapshot differ: {parts}")


def _small(children: int = 1, window: int = 64) -> Configuration:
    return Configuration(
        (ChildConfiguration(Kind.SUB, window),) * children,
        tuple(RingConfiguration((1 << 20) + ring * _RING_BYTES, _RING_BYTES) for ring in range(4)),
    )


def _refuse(engine: Scheduler, event: Event, error: type[PtoError]) -> None:
    before = engine.snapshot()
    try:
        answer = engine.handle(event)
    except error:
        expect(engine.snapshot() == before, f"the engine refused {event} but changed")
    except Exception as other:
        raise ContractError(f"{event} raised {other!r}, expected {error.__name__}") from other
    else:
        raise ContractError(f"{event} returned {answer}, expected {error.__name__}")
