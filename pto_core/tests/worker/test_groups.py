"""The members of a group get distinct children at once, and a group starts soon."""

from __future__ import annotations

import random

import pytest

from pto_devkit.engine import (
    ChildConfiguration,
    Configuration,
    ReferenceEngine,
    RingConfiguration,
)
from pto_devkit.engine.interface import (
    ChildLost,
    ChildReady,
    Completion,
    Dispatch,
    Event,
    Instruction,
    Kind,
    Member,
    Result,
    RunBegin,
    RunEnd,
    RunFinished,
    Send,
    Submit,
    Submitted,
    TaskFinished,
)

CHILDREN = 4
WAITING_SINGLES = 8
LIMIT = 100


class Stream:
    """Four children that are never idle. Counts the tasks that are sent while each group waits."""

    def __init__(self, numbers: random.Random, window: int) -> None:
        self.numbers = numbers
        rings = tuple(RingConfiguration(1 << 30 | ring << 20, 1 << 20) for ring in range(4))
        children = (ChildConfiguration(Kind.SUB, window),) * CHILDREN
        self.engine = ReferenceEngine(Configuration(children, rings, repeats_lost=True))
        self.sent = [0] * CHILDREN
        self.done = [0] * CHILDREN
        self.alive = set(range(CHILDREN))
        self.members: dict[int, int] = {}
        self.waits: dict[int, int] = {}
        self.longest = 0
        self.started = self.failed = self.waiting_singles = 0
        for child in range(CHILDREN):
            self.handle(ChildReady(child))
        self.handle(RunBegin())

    def handle(self, event: Event) -> list[Instruction]:
        answer = self.engine.handle(event)
        sends = [each for each in answer if isinstance(each, Send)]
        for send in sends:
            self.sent[send.child] = send.count
            if send.member == 0:
                self._start(send.task, [each for each in sends if each.task == send.task])
        for each in answer:
            if isinstance(each, TaskFinished) and each.result is Result.FAILED:
                self.failed += self.waits.pop(each.task, None) is not None
        return answer

    def _start(self, task: int, sends: list[Send]) -> None:
        assert len(sends) == len({send.child for send in sends}) == self.members.get(task, 1)
        if task in self.members:
            self.longest = max(self.longest, self.waits.pop(task, 0))
            self.started += 1
        else:
            self.waiting_singles -= 1
        for group in self.waits:
            self.waits[group] += 1
            assert self.waits[group] <= LIMIT, f"group {group} has not started"

    def submit_group(self) -> None:
        size = self.numbers.randint(2, CHILDREN)
        pins = tuple(self.numbers.sample(range(CHILDREN), size))
        pins = pins if self.numbers.random() < 0.8 else ()
        answer = self.handle(Submit(Kind.SUB, (Member(),) * size, pins, retries=50))[0]
        assert isinstance(answer, Submitted)
        self.members[answer.task] = size
        self.waits[answer.task] = 0

    def saturate(self) -> None:
        while self.waiting_singles < WAITING_SINGLES:
            self.waiting_singles += 1
            self.handle(Submit(Kind.SUB))
        self.handle(Dispatch())

    def complete_one(self) -> bool:
        busy = [child for child in sorted(self.alive) if self.done[child] < self.sent[child]]
        if not busy:
            return False
        child = self.numbers.choice(busy)
        self.done[child] += 1
        self.handle(Completion(child, self.done[child]))
        return True

    def lose(self, child: int, *, returns: bool) -> None:
        self.alive.discard(child)
        before = len(self.engine.snapshot()["queues"]["singles"])
        started = min(self.done[child] + 1, self.sent[child])
        self.done[child] = self.sent[child]
        self.handle(ChildLost(child, 9, started, returns))
        self.waiting_singles += len(self.engine.snapshot()["queues"]["singles"]) - before


@pytest.fixture
def groups(pytestconfig: pytest.Config) -> int:
    return 10_000 if pytestconfig.getoption("full") else 400


# Invariant: The members of a group are sent together to distinct children. The oldest waiting group
# waits for at most one completion of each of its children.
@pytest.mark.parametrize("window", [1, 4, 64])
def test_each_group_starts_within_100_dispatches_of_being_ready(groups: int, window: int) -> None:
    stream = Stream(random.Random(window), window)
    submitted = 0
    while submitted < groups:
        stream.saturate()
        if len(stream.waits) < 2:
            stream.submit_group()
            submitted += 1
        stream.complete_one()
    finish(stream, groups)
    assert stream.longest <= LIMIT


@pytest.mark.parametrize("returns", [True, False])
def test_a_group_starts_soon_even_if_a_child_is_killed(returns: bool) -> None:
    stream = Stream(random.Random(5), 4)
    for number in range(300):
        stream.saturate()
        if len(stream.waits) < 2:
            stream.submit_group()
        if number == 100:
            stream.lose(2, returns=returns)
        if number == 105 and returns:
            stream.alive.add(2)
            stream.handle(ChildReady(2))
        stream.complete_one()
    assert stream.longest <= LIMIT
    finish(stream, len(stream.members))
    assert (stream.failed == 0) == returns


def finish(stream: Stream, groups: int) -> None:
    answer = stream.handle(RunEnd())
    while not any(isinstance(each, RunFinished) for each in answer):
        stream.handle(Dispatch())
        busy = [child for child in stream.alive if stream.done[child] < stream.sent[child]]
        child = busy[0]
        stream.done[child] += 1
        answer = stream.handle(Completion(child, stream.done[child]))
    assert stream.started + stream.failed >= groups
    assert stream.engine.snapshot()["tasks"] == {}
