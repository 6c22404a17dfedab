"""Bugs planted in the reference engine; the random programs find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_random_programs import world_of

from pto_core.errors import InternalError
from pto_core.hierarchy.states import State
from pto_devkit.engine.events import Hazards
from pto_devkit.engine.reference.dispatch import Dispatcher
from pto_devkit.engine.reference.endings import Endings
from pto_devkit.engine.reference.slots import Edge
from pto_devkit.engine.reference.submission import Submission
from pto_devkit.schedulers.verdicts import expect_end, expect_poison, expect_values
from pto_devkit.schedulers.world import CALM, ROUGH

SEEDS = 60
Function = Callable[..., Any]


def ends_before_its_producers(settle: Function) -> Function:
    def planted(self: Any, task: Any) -> None:
        if task.poison is not None and self._core.slots.state(task) is State.PENDING:
            self._poison(task)
        else:
            settle(self, task)

    return planted


def poisons_along_every_edge(_: Any) -> property:
    return property(lambda self: True)


def forgets_poison_with_the_slot(consume: Function) -> Function:
    def planted(self: Any, task: Any) -> None:
        consume(self, task)
        self._core.regions.forget(task.entries)

    return planted


def restores_nothing(_: Function) -> Function:
    return lambda self, task: None


def sends_early_without_requirement(send: Function) -> Function:
    return lambda self, task, children, event, requirement=None: send(self, task, children, event)


def forgets_the_readers(find: Function) -> Function:
    def planted(self: Any, draft: Any, region: Any, edge: Any, *, writers: bool) -> None:
        if writers:
            find(self, draft, region, edge, writers=True)

    return planted


PLANTS = [
    (Endings, "_settle", ends_before_its_producers),
    (Edge, "poisons", poisons_along_every_edge),
    (Endings, "_consume", forgets_poison_with_the_slot),
    (Dispatcher, "_keep_regions", restores_nothing),
    (Dispatcher, "_send", sends_early_without_requirement),
    (Submission, "_find_overlaps", forgets_the_readers),
]


@pytest.mark.parametrize(
    ("owner", "name", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS]
)
def test_random_programs_find(owner, name, plant, monkeypatch):
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    assert any(is_found(seed) for seed in range(SEEDS))


def is_found(seed: int) -> bool:
    try:
        world = world_of(seed, Hazards.FULL, ROUGH if seed % 2 else CALM)
        expect_end(world)
        expect_poison(world)
        expect_values(world)
    except (AssertionError, InternalError, KeyError):
        return True
    return False


def test_without_a_plant_nothing_is_found():
    assert not any(is_found(seed) for seed in range(20))
