"""Tasks with known edges: both engines wait for the same producers, and refuse invalid edges."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from engine_compared import ComparedEngine, Difference
from engine_rig import SUB, Rig, reads, rig_configuration, updates, writes

from pto_core.errors import PtoError, UsageError
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    Allocate,
    Cancel,
    ChildLost,
    ChildReady,
    Completion,
    Dispatch,
    Event,
    Hazards,
    Instruction,
    Known,
    Member,
    Outcome,
    RunBegin,
    RunEnd,
    RunFinished,
    ScopeBegin,
    ScopeEnd,
    Send,
    Submit,
    Submitted,
    Tensor,
)
from pto_devkit.engine.reference.core import Edge

WHY = (Edge.ORDERS, Edge.DATA, Edge.EXPLICIT, Edge.DATA | Edge.CERTAIN, Edge.CERTAIN)


class Stream:
    """Random events of one run, most of them submits with known edges."""

    def __init__(self, engine: ComparedEngine, numbers: random.Random, children: int) -> None:
        self.engine = engine
        self.numbers = numbers
        self.in_flight: list[list[Send]] = [[] for _ in range(children)]
        self.lost: set[int] = set()
        self.slabs: list[list[int]] = [[]]
        self.tasks = 0
        self.is_over = False
        self.seen: Counter[str] = Counter()

    def handle(self, event: Event) -> bool:
        """Send the event to both engines; return whether they accepted it."""
        try:
            answer = self.engine.handle(event)
        except PtoError:
            self.seen["refused"] += 1
            return False
        self.seen.update([type(event).__name__, *(type(each).__name__ for each in answer)])
        self._hear(event, answer)
        return True

    def _hear(self, event: Event, answer: list[Instruction]) -> None:
        for each in answer:
            if isinstance(each, Send):
                self.in_flight[each.child].append(each)
                self.seen["early"] += each.requirement is not None
            elif isinstance(each, Submitted):
                self.tasks += 1
                if each.addresses:
                    self.slabs[-1].append(each.task)
            elif isinstance(each, RunFinished):
                self.is_over = True
        if isinstance(event, Completion):
            frames = self.in_flight[event.child]
            self.in_flight[event.child] = [each for each in frames if each.count > event.count]

    def step(self) -> None:
        choice = self.numbers.random()
        if choice < 0.45:
            self.handle(self._submit())
        elif choice < 0.65:
            self.handle(Dispatch())
        elif choice < 0.85:
            self.complete()
        elif choice < 0.9:
            self.handle(Allocate(self.numbers.choice((0, 64, 1500))))
        elif choice < 0.94 and len(self.slabs) < 4:
            self.slabs.append([])
            self.handle(ScopeBegin())
        elif choice < 0.97 and len(self.slabs) > 1:
            self.slabs.pop()
            self.handle(ScopeEnd())
        else:
            self._lose_or_cancel()

    def _submit(self) -> Submit:
        numbers = self.numbers
        most = min(self.tasks, 12) + (numbers.random() < 0.05)
        chosen = numbers.sample(range(1, most + 1), min(most, numbers.choice((0, 1, 1, 2, 4))))
        named = [task for scope in self.slabs for task in scope]
        owners = numbers.sample(named, min(len(named), numbers.choice((0, 0, 1, 2))))
        tensors = (writes(0, 100),) * (numbers.random() < 0.2)
        retries = numbers.choice((0, 0, 0, 1))
        if retries:
            tensors += (updates(4096),)
        size = 2 if len(self.in_flight) > 1 and numbers.random() < 0.2 else 1
        return Submit(
            SUB,
            (Member(tensors),) * size,
            retries=retries,
            known=Known(
                tuple((distance, int(numbers.choice(WHY))) for distance in chosen),
                tuple(self.tasks - owner for owner in owners),
            ),
        )

    def complete(self) -> None:
        busy = [child for child, frames in enumerate(self.in_flight) if frames]
        if not busy:
            return
        frame = self.in_flight[self.numbers.choice(busy)][0]
        outcome = self.numbers.choice([*[Outcome.SUCCEEDED] * 6, *Outcome])
        self.handle(Completion(frame.child, frame.count, outcome, 7 if outcome == 1 else -1))

    def _lose_or_cancel(self) -> None:
        child = self.numbers.randrange(len(self.in_flight))
        if self.numbers.random() < 0.1:
            self.handle(Cancel(9))
            return
        started = self.engine.snapshot()["children"][child]["completed"]
        started += bool(self.in_flight[child]) and self.numbers.random() < 0.5
        if self.handle(ChildLost(child, 8, started, returns=True)):
            self.in_flight[child] = []
            self.handle(ChildReady(child))

    def end(self) -> None:
        for _ in self.slabs[1:]:
            self.handle(ScopeEnd())
        self.handle(RunEnd())
        while not self.is_over:
            self.handle(Dispatch())
            self.complete()


# Invariant: The engine and the reference engine link explicit edges like edges from a lookup,
# and refuse edges to another run.
def test_random_edges_with_failures_losses_groups_and_scopes(pytestconfig: pytest.Config) -> None:
    seen: Counter[str] = Counter()
    for seed in range(400 if pytestconfig.getoption("full") else 25):
        numbers = random.Random(seed)
        children = numbers.randint(1, 3)
        window = numbers.choice((1, 3, 16))
        repeats_lost = numbers.random() < 0.5
        engine = ComparedEngine(
            rig_configuration((SUB,) * children, window, repeats_lost=repeats_lost)
        )
        stream = Stream(engine, numbers, children)
        try:
            for child in range(children):
                stream.handle(ChildReady(child))
            stream.handle(RunBegin(list(Hazards)[seed % 2]))
            for _ in range(120):
                stream.step()
            stream.end()
            engine.validate()
        except Difference as difference:
            raise AssertionError(
                f"seed {seed}: the engines differ at event {engine.events}"
            ) from difference
        seen += stream.seen
    for feature in ("Submit", "early", "refused", "TaskFinished", "ChildLost", "RestoreRegions"):
        assert seen[feature] > 10, seen


def test_a_submit_with_known_edges_is_neither_looked_up_nor_registered() -> None:
    rig = Rig()
    first = rig.submit(writes(4096))
    known = rig.submit(updates(4096), known=Known())
    assert rig.state(known) == "READY"
    reader = rig.submit(reads(4096))
    assert rig.waits_for(reader) == [first]


def test_a_known_edge_equals_an_edge_from_a_lookup() -> None:
    found, given = Rig(), Rig()
    for rig, known in ((found, None), (given, Known(((1, int(Edge.DATA | Edge.CERTAIN)),)))):
        rig.submit(writes(4096))
        rig.submit(reads(4096), known=known)
    assert found.engine.snapshot() == given.engine.snapshot()


def test_edges_to_anything_but_earlier_tasks_are_refused() -> None:
    engine = ComparedEngine(rig_configuration((SUB,)))
    engine.handle(RunBegin())
    engine.handle(Submit(SUB))
    for known, message in (
        (Known(((2, 1),)), "the task 2 submits before it, which does not belong to this run"),
        (Known(((0, 1),)), "the task 0 submits before it"),
        (Known((), (5,)), "the task 5 submits before it"),
        (Known((), (1,)), "which has no buffer in an open scope"),
    ):
        with pytest.raises(UsageError, match=message):
            engine.handle(Submit(SUB, (Member((Tensor(0, 8, Tag.OUTPUT),)),), known=known))
    engine.validate()
