"""The kit finds the defects of schedulers: each broken one fails the test that is named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pto_core.errors import ProtocolError
from pto_core.hierarchy.engine import Configuration, ReferenceEngine
from pto_core.hierarchy.engine.events import (
    Cancel,
    ChildLost,
    Event,
    Member,
    RunBegin,
    Submit,
    Tag,
)
from pto_core.hierarchy.engine.instructions import Instruction, Send, TaskFinished
from pto_core.interfaces import API_VERSION, Candidate, Health, PlacedTask, Policy, TaskPolicy
from pto_devkit import SchedulerContract, SchedulerSubject
from pto_devkit.capabilities import withdraw_unclaimed

Candidates = Sequence[tuple[int, int]]


def retagged(event: Event, old: Tag, new: Tag) -> Event:
    """Return a submit in which one tag is replaced."""
    if not isinstance(event, Submit):
        return event
    members = tuple(
        Member(tuple(replace(each, tag=new) if each.tag is old else each for each in one.tensors))
        for one in event.members
    )
    return replace(event, members=members)


class LosesEdges(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        return super().handle(retagged(event, Tag.INPUT, Tag.NO_DEP))


class ForgetsWriters(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        return super().handle(retagged(event, Tag.OUTPUT_EXISTING, Tag.NO_DEP))


class ChargesFramesThatNeverBegan(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, ChildLost):
            event = replace(event, started=self.snapshot()["children"][event.child]["sent"])
        return super().handle(event)


class IgnoresCancel(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        return [] if isinstance(event, Cancel) else super().handle(event)


class ProvesNoDeadlock(ReferenceEngine):
    def deadlock(self) -> None:
        return None


class AcceptsImpossibleReports(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        try:
            return super().handle(event)
        except ProtocolError:
            return []


class EndsARunThatIsRefused(ReferenceEngine):
    """Changes its state before it refuses an event."""

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, RunBegin) and self.snapshot()["run"]["is_running"]:
            super().handle(Cancel(1))
        return super().handle(event)


class SharesItsState(ReferenceEngine):
    events = 0

    def handle(self, event: Event) -> list[Instruction]:
        SharesItsState.events += 1
        return super().handle(event)

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "events": self.events}


class IgnoresThePolicy(ReferenceEngine):
    def __init__(self, configuration: Configuration, *, policy: Policy) -> None:
        super().__init__(configuration)


class ForgetsTheTask(ReferenceEngine):
    def __init__(self, configuration: Configuration, *, policy: Any) -> None:
        pick = getattr(policy, "pick", None)
        call = policy if pick is None else (lambda candidates, preferred: candidates[-1][0])
        super().__init__(configuration, policy=call)


class HasAnotherOrder(ReferenceEngine):
    """A valid engine whose order differs from that of the reference engine."""

    def __init__(self, configuration: Configuration, *, policy: Policy) -> None:
        super().__init__(configuration, policy=lambda candidates, preferred: candidates[-1][0])


class FinishesTwice(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        answer = super().handle(event)
        return answer + [each for each in answer if isinstance(each, TaskFinished)]


class SendsToAnyChild(ReferenceEngine):
    def handle(self, event: Event) -> list[Instruction]:
        answer = super().handle(event)
        count = len(self.snapshot()["children"])
        return [
            replace(each, child=(each.child + 1) % (count + 1)) if isinstance(each, Send) else each
            for each in answer
        ]


def picks_the_preferred(candidates: Candidates, preferred: int) -> int:
    return preferred if preferred >= 0 else candidates[0][0]


def sorts_in_place(candidates: Any, preferred: int) -> int:
    candidates.sort(key=lambda pair: pair[1])
    return candidates[0][0]


class FailsLater:
    def __init__(self) -> None:
        self.left = 5

    def __call__(self, candidates: Candidates, preferred: int) -> int:
        self.left -= 1
        return candidates[0 if self.left else len(candidates)][0]


class NeedsAKnownTask:
    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        return {"task": candidates[0].child}[task.callable]


class Engines:
    """A plugin that provides a given engine."""

    name = "broken"
    api_version = API_VERSION
    capabilities = frozenset({"engine", "reference_order"})

    def __init__(self, made: type[ReferenceEngine]) -> None:
        self.engine = lambda configuration, policy: made(configuration, policy=policy)

    def health(self) -> Health:
        return Health(ok=True)


class Policies:
    """A plugin that provides a given policy."""

    name = "broken"
    api_version = API_VERSION
    capabilities = frozenset({"policy"})

    def __init__(self, make: Callable[[], Policy | TaskPolicy]) -> None:
        self.policy = make

    def health(self) -> Health:
        return Health(ok=True)


# Each defect, and the test that must find it; other tests may find it too.
DEFECTS: dict[str, tuple[Engines | Policies, str]] = {
    "loses_edges": (Engines(LosesEdges), "test_sequential_answer"),
    "finishes_twice": (Engines(FinishesTwice), "test_sequential_answer"),
    "sends_to_any_child": (Engines(SendsToAnyChild), "test_sequential_answer"),
    "charges_frames_that_never_began": (
        Engines(ChargesFramesThatNeverBegan),
        "test_lost_children",
    ),
    "forgets_writers": (Engines(ForgetsWriters), "test_raw_hazards"),
    "ignores_cancel": (Engines(IgnoresCancel), "test_cancelled_runs"),
    "proves_no_deadlock": (Engines(ProvesNoDeadlock), "test_deadlocks"),
    "accepts_impossible_reports": (
        Engines(AcceptsImpossibleReports),
        "test_refusals_change_nothing",
    ),
    "changes_before_it_refuses": (Engines(EndsARunThatIsRefused), "test_refusals_change_nothing"),
    "shares_its_state": (Engines(SharesItsState), "test_engines_are_apart"),
    "ignores_the_policy": (Engines(IgnoresThePolicy), "test_policy_is_used"),
    "forgets_the_task": (Engines(ForgetsTheTask), "test_policy_is_used"),
    "has_another_order": (Engines(HasAnotherOrder), "test_reference_order"),
    "picks_the_preferred": (Policies(lambda: picks_the_preferred), "test_picks_a_candidate"),
    "sorts_in_place": (Policies(lambda: sorts_in_place), "test_arguments_stay"),
    "fails_later": (Policies(FailsLater), "test_runs_with_policy"),
    "needs_a_known_task": (Policies(NeedsAKnownTask), "test_a_worker_asks_the_policy"),
}


def collected(plugin: Engines | Policies) -> dict[str, Callable[[Any], None]]:
    """Return the tests that are collected for a plugin, by name."""
    contract = type("Contract", (), dict(vars(SchedulerContract)))
    withdraw_unclaimed(contract, plugin.capabilities)
    return {name: test for name, test in vars(contract).items() if name[:5] == "test_" and test}


def fails(plugin: Engines | Policies, test: str) -> bool:
    subject: Any = SchedulerSubject(plugin.name, plugin)
    try:
        collected(plugin)[test](SimpleNamespace(subject=subject))
    except Exception:  # noqa: BLE001 - what an engine raises makes the test fail, too
        return True
    return False


class PicksTheLast:
    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        return candidates[-1].child


def test_a_policy_that_depends_on_the_task_passes() -> None:
    plugin: Any = Policies(PicksTheLast)
    for test in collected(plugin):
        assert not fails(plugin, test), test


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_scheduler_is_caught(defect: str) -> None:
    assert fails(*DEFECTS[defect])


@pytest.mark.parametrize("defect", ["has_another_order", "ignores_the_policy"])
def test_a_defect_fails_no_other_test(defect: str) -> None:
    plugin, found_by = DEFECTS[defect]
    for test in collected(plugin).keys() - {found_by, "test_policy_is_used"}:
        assert not fails(plugin, test), test


def test_every_test_of_the_contract_catches_a_defect() -> None:
    contract = {name for name in vars(SchedulerContract) if name.startswith("test_")}
    assert {test for _, test in DEFECTS.values()} == contract
