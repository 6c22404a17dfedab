"""The kit finds the defects of schedulers: each broken one fails the test that is named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pto_core.interfaces import (
    API_VERSION,
    Candidate,
    Health,
    PlacedTask,
    Policy,
    Scheduler,
)
from pto_devkit import SchedulerContract, SchedulerSubject

Candidates = Sequence[tuple[int, int]]


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


class Policies:
    """A plugin that provides a given policy."""

    name = "broken"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def __init__(self, make: Callable[[], Policy | Scheduler]) -> None:
        self.policy = make

    def health(self) -> Health:
        return Health(ok=True)


# Each defect, and the test that must find it; other tests may find it too.
DEFECTS: dict[str, tuple[Policies, str]] = {
    "picks_the_preferred": (Policies(lambda: picks_the_preferred), "test_picks_a_candidate"),
    "sorts_in_place": (Policies(lambda: sorts_in_place), "test_arguments_stay"),
    "fails_later": (Policies(FailsLater), "test_runs_with_policy"),
    "needs_a_known_task": (Policies(NeedsAKnownTask), "test_a_worker_asks_the_policy"),
}


def collected() -> dict[str, Callable[[Any], None]]:
    """Return the tests of the contract by name."""
    return {name: test for name, test in vars(SchedulerContract).items() if name[:5] == "test_"}


def fails(plugin: Policies, test: str) -> bool:
    subject: Any = SchedulerSubject(plugin.name, plugin)
    try:
        collected()[test](SimpleNamespace(subject=subject))
    except Exception:  # noqa: BLE001 - what a policy raises makes the test fail, too
        return True
    return False


class PicksTheLast:
    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        return candidates[-1].child


def test_a_policy_that_depends_on_the_task_passes() -> None:
    plugin: Any = Policies(PicksTheLast)
    for test in collected():
        assert not fails(plugin, test), test


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_scheduler_is_caught(defect: str) -> None:
    assert fails(*DEFECTS[defect])


def test_every_test_of_the_contract_catches_a_defect() -> None:
    contract = {name for name in vars(SchedulerContract) if name.startswith("test_")}
    assert {test for _, test in DEFECTS.values()} == contract
