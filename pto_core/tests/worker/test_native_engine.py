"""The native engine equals the reference engine in every answer, refusal and snapshot."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from engine_compared import ComparedEngine, Difference
from engine_regions import RegionStream, configuration

from pto_core.errors import CapacityError, PtoError, UsageError
from pto_core.worker.states import TRANSITIONS, TaskEvent, TaskState
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    Box,
    Cancel,
    ChildLost,
    ChildReady,
    Completion,
    Deadline,
    Dispatch,
    Event,
    GiveUp,
    Hazards,
    Instruction,
    Kind,
    Member,
    Outcome,
    RunBegin,
    RunEnd,
    RunFinished,
    ScopeEnd,
    Send,
    Submit,
    Submitted,
    Tensor,
)
from pto_devkit.engine.native import NativeEngine
from pto_devkit.schedulers.programs import ProgramWriter
from pto_devkit.schedulers.world import Chances, SchedulerWorld, configuration_of

WORLDS = (
    Chances(),
    Chances(loss=0.04, join=0.2, deadline=0.02),
    Chances(loss=0.01, cancel=0.02, withdraw=0.1),
    Chances(loss=0.01, withdraw=0.2, cancel_task=0.1),
    Chances(loss=0.01, cancel=0.005, cancel_task=0.05, delay=0.7),
)


@pytest.fixture
def events(pytestconfig: pytest.Config) -> int:
    """The number of random events, 100,000 in the full test; empty dispatches do not count."""
    return 100_000 if pytestconfig.getoption("full") else 8_000


class Heckled(ComparedEngine):
    """Compared engines with invalid events in between; checks the invariants after some events."""

    numbers = random.Random(0)
    kinds: list[Kind]  # kind of each child
    seen: Counter[str]

    def handle(self, event: Event) -> list[Instruction]:
        if self.numbers.random() < 0.2:
            with pytest.raises(PtoError):
                super().handle(self._nonsense())
        answer = super().handle(event)
        if self.numbers.random() < 0.1:
            self.validate()
        self.seen.update(_features(event, answer))
        return answer

    def _nonsense(self) -> Event:
        children = self.snapshot()["children"]
        child = self.numbers.randrange(len(children))
        sent, completed = children[child]["sent"], children[child]["completed"]
        some = Member((Tensor(4096, 8, Tag.INPUT),))
        kinds = self.kinds
        return self.numbers.choice(
            [
                Completion(child, sent + 1),
                Completion(child, completed, Outcome.FAILED, 4),
                Completion(len(children), 1),
                Completion(-1, 1),
                Deadline(child, sent + 1, 5),
                Deadline(child, 0, 5),
                ChildReady(99),
                ChildLost(99, 1, 0),
                ChildLost(child, 1, sent + 1),
                ChildLost(child, 1, completed - 1 if completed else sent + 1),
                Submit(kinds[child], after=(1 << 40,)),
                Submit(kinds[child], after=(-1,)),
                Submit(kinds[child], ()),
                Submit(kinds[child], (some,) * (len(children) + 1)),
                Submit(kinds[child], (some,), (len(children),)),
                Submit(kinds[child], (some,), retries=-1),
                Submit(Kind(1 - kinds[child]), (some,), (child,)),
                Submit(kinds[child], (Member((Tensor(0, 8, Tag.INOUT),)),)),
                Submit(kinds[child], (Member((Tensor((1 << 64) - 1, 8, Tag.INPUT),)),)),
                *(Submit(kinds[child], (Member((each,)),)) for each in _strange(len(children))),
            ]
        )


def _strange(children: int) -> list[Tensor]:
    """Return invalid tensors of child memory: no such child, or an impossible address."""
    end = 1 << 48
    return [
        Tensor(4096, 8, Tag.INPUT, child=children),
        Tensor(4096, 8, Tag.INPUT, child=-2),
        Tensor(end - 7, 8, Tag.INPUT, child=0),
        Tensor(end - 8, 8, Tag.INPUT, Box(end - 8, 8, (2,), (0,), (1,)), 0),
        Tensor(0, 8, Tag.OUTPUT, child=0),
    ]


def _features(event: Event, answer: list[Instruction]) -> list[str]:
    names = [type(event).__name__, *(type(each).__name__ for each in answer)]
    if isinstance(event, Completion):
        names.append(event.outcome.name)
    if isinstance(event, Submit):
        names += ["after"] * (event.after != ())
    for each in answer:
        if isinstance(each, Send):
            names += ["early"] * (each.requirement is not None) + ["member"] * each.member
    return names


# Invariant: For every event, the engine returns the answer, refusal and snapshot of the
# reference engine.
def test_random_programs_with_failures_groups_retries_and_early_tasks(events: int) -> None:
    seen: Counter[str] = Counter()
    count = seed = 0
    while count < events:
        numbers = random.Random(seed)
        hazards = list(Hazards)[seed % 2]
        tasks = numbers.randint(1, 60)
        program = ProgramWriter(numbers, hazards, tasks=tasks, has_chains=seed % 5 < 3).write()
        shape = configuration_of(
            program,
            ring_size=1024 * numbers.choice((4, 6, 16, 4096)),
            window=numbers.choice([1, 2, 5, 64]),
            repeats_lost=numbers.random() < 0.5,
        )
        engine = Heckled(shape)
        engine.numbers = random.Random(seed + 1)
        engine.seen = seen
        engine.kinds = [each.kind for each in shape.children]
        try:
            SchedulerWorld(program, shape, engine, numbers, WORLDS[seed % len(WORLDS)]).run()
            engine.validate()
        except Difference as difference:
            raise AssertionError(
                f"seed {seed}: the engines differ at event {engine.events}"
            ) from difference
        count += engine.events
        seed += 1
    expected = "early member FAILED SKIPPED ChildLost EndChild Cancel SaveRegions RestoreRegions"
    expected += " Delay Resume"
    for feature in [*expected.split(), "DropRegions", "Blocked", "SpaceFreed", "after"]:
        assert seen[feature] >= count // 5000, f"{feature}: {seen}"


def test_random_regions(events: int) -> None:
    count = seed = conservative = 0
    while count < events // 2:
        engine = ComparedEngine(configuration())
        stream = RegionStream(random.Random(seed))
        for event in stream.events(300):
            try:
                stream.hear(event, engine.handle(event))
            except PtoError:
                pass  # both engines refused the event
            except Difference as difference:
                raise AssertionError(
                    f"seed {seed}: the engines differ at event {engine.events}"
                ) from difference
        engine.validate()
        conservative += engine.snapshot()["conservative_edges"]
        assert engine.snapshot()["tasks"] == {}
        count += engine.events
        seed += 1
    assert conservative > 0


class SideBySide:
    """Runs that begin, submit, are cancelled and end in a random order."""

    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.engine = ComparedEngine(configuration())
        self.hazards = numbers.choice(list(Hazards))
        self.streams: dict[int, RegionStream] = {}
        self.frames: tuple[deque[int], deque[int]] = (deque(), deque())
        self.finished: list[RunFinished] = []
        self.most = 0

    def run(self, steps: int) -> None:
        self.handle(ChildReady(0))
        self.handle(ChildReady(1))
        for _ in range(steps):
            self._step()
        while self.streams:
            self._end(next(iter(self.streams)))
        self.handle(Dispatch())
        while any(self.frames):
            self._complete(Outcome.SUCCEEDED)
            self.handle(Dispatch())
        self.engine.validate()

    def handle(self, event: Event, stream: RegionStream | None = None) -> None:
        try:
            answer = self.engine.handle(event)
        except UsageError:
            return  # both engines refused the event
        if stream is not None:
            stream.hear(event, [each for each in answer if isinstance(each, Submitted)])
        for each in answer:
            if isinstance(each, Send):
                self.frames[each.child].append(each.count)
            elif isinstance(each, RunFinished):
                self.finished.append(each)

    def _step(self) -> None:
        choice = self.numbers.random()
        if not self.streams or (choice < 0.05 and len(self.streams) < 4):
            self.handle(RunBegin(self.hazards))
            runs = self.engine.snapshot()["runs"]
            (new,) = {
                n for n, run in enumerate(runs) if run["is_open"] and not run["is_ending"]
            } - {*self.streams}
            self.streams[new] = RegionStream(self.numbers, new)
            self.most = max(self.most, len(self.streams))
            return
        number = self.numbers.choice(list(self.streams))
        if choice < 0.08:
            self._end(number)
        elif choice < 0.1:
            self.handle(Cancel(7, number))
        elif choice < 0.11:
            self.handle(GiveUp(number))
        elif choice < 0.3 and any(self.frames):
            self._complete(self.numbers.choice([Outcome.SUCCEEDED, Outcome.FAILED]))
        elif choice < 0.45:
            self.handle(Dispatch())
        else:
            self.handle(self.streams[number].event(), self.streams[number])
        if self.numbers.random() < 0.1:
            self.engine.validate()

    def _end(self, number: int) -> None:
        for _ in self.streams.pop(number).scopes[1:]:
            self.handle(ScopeEnd(number))
        self.handle(RunEnd(number))

    def _complete(self, outcome: Outcome) -> None:
        child = self.numbers.choice([child for child in (0, 1) if self.frames[child]])
        count = self.frames[child].popleft()
        if self._must_skip(child):
            outcome = Outcome.SKIPPED
        self.handle(Completion(child, count, outcome, 5 if outcome is Outcome.FAILED else -1))

    def _must_skip(self, child: int) -> bool:
        """Return whether the next frame was sent early behind a producer that has failed since."""
        snapshot = self.engine.snapshot()
        (task, _) = snapshot["children"][child]["in_flight"][0]
        return snapshot["tasks"][task]["poison"] is not None


# Invariant: Runs that are open at once end by themselves, with their own failures, and the engine
# equals the reference engine.
def test_random_runs_side_by_side(events: int) -> None:
    count = seed = most = 0
    ends: list[RunFinished] = []
    while count < events // 4:
        world = SideBySide(random.Random(seed))
        try:
            world.run(200)
        except Difference as difference:
            raise AssertionError(f"seed {seed}: the engines differ") from difference
        assert world.engine.snapshot()["tasks"] == {}
        assert not any(run["is_open"] for run in world.engine.snapshot()["runs"])
        count += world.engine.events
        most = max(most, world.most)
        ends += world.finished
        seed += 1
    assert most == 4
    assert any(end.failed and end.run for end in ends)


class PicksTheLast:
    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, candidates: list[tuple[int, int]], *more: int) -> int:
        self.asked.append((list(candidates), *more))
        return candidates[-1][0]


class SeesTheTask(PicksTheLast):
    pick = PicksTheLast.__call__


@pytest.mark.parametrize(
    ("policy", "asked"),
    [(PicksTheLast(), ([(0, 0), (1, 0)], -1)), (SeesTheTask(), ([(0, 0), (1, 0)], -1, 0))],
    ids=["call", "pick"],
)
def test_both_engines_ask_a_policy_in_python(policy: PicksTheLast, asked: object) -> None:
    engine = ComparedEngine(configuration(), policy=policy)
    for event in (ChildReady(0), ChildReady(1), RunBegin(), Submit(Kind.SUB), Dispatch()):
        answer = engine.handle(event)
    assert answer == [Send(1, 1, 0, 0)]
    assert policy.asked == [asked] * 2


def test_outputs_of_more_bytes_than_an_address_can_name_are_refused() -> None:
    engine = NativeEngine(configuration())
    engine.handle(RunBegin())
    half = Tensor(0, 1 << 63, Tag.OUTPUT)
    with pytest.raises(CapacityError, match="a submit needs 184467440737095"):
        engine.handle(Submit(Kind.SUB, (Member((half, half)),)))
    engine.validate()


def test_a_difference_is_found() -> None:
    row = (TaskState.FREE, TaskEvent.SUBMIT)
    changed = {pair: target for pair, target in TRANSITIONS.items() if pair != row}
    engine = ComparedEngine(configuration(), transitions=changed)
    engine.handle(RunBegin())
    with pytest.raises(Difference, match="SUBMIT cannot happen"):
        engine.handle(Submit(Kind.SUB))
