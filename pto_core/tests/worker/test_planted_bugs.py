"""Bugs planted in the reference engine; the random programs find each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_random_programs import world_of

from pto_core.errors import InternalError, ProtocolError
from pto_core.worker.states import TaskState
from pto_devkit.engine import ReferenceEngine
from pto_devkit.engine.interface import Cancel, ChildLost, Hazards, Send, TaskFinished
from pto_devkit.engine.reference.core import Edge
from pto_devkit.engine.reference.dispatch import Dispatcher
from pto_devkit.engine.reference.endings import Endings
from pto_devkit.engine.reference.submission import Submission
from pto_devkit.schedulers.world import (
    CALM,
    CANCELLED,
    ROUGH,
    expect_cancel,
    expect_end,
    expect_failures,
    expect_poison,
    expect_retries,
    expect_values,
)

SEEDS = 160
# Most programs are of the two kinds in which the rarest bugs appear.
WORLDS = [
    *[(Hazards.FULL, CALM)] * 2,
    *[(Hazards.FULL, ROUGH)] * 3,
    *((Hazards.RAW, CALM), (Hazards.RAW, ROUGH), (Hazards.FULL, CANCELLED)),
]
Function = Callable[..., Any]


def ends_before_its_producers(settle: Function) -> Function:
    def planted(self: Any, task: Any) -> None:
        if task.poison is not None and self._core.slots.state(task) is TaskState.PENDING:
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


def finishes_twice(handle: Function) -> Function:
    def planted(self: Any, event: Any) -> Any:
        answer = handle(self, event)
        return answer + [each for each in answer if isinstance(each, TaskFinished)]

    return planted


def sends_to_any_child(handle: Function) -> Function:
    def planted(self: Any, event: Any) -> Any:
        count = len(self.snapshot()["children"])
        return [
            replace(each, child=(each.child + 1) % (count + 1)) if isinstance(each, Send) else each
            for each in handle(self, event)
        ]

    return planted


def charges_frames_that_never_began(handle: Function) -> Function:
    def planted(self: Any, event: Any) -> Any:
        if isinstance(event, ChildLost):
            event = replace(event, started=self.snapshot()["children"][event.child]["sent"])
        return handle(self, event)

    return planted


def ignores_a_cancel(handle: Function) -> Function:
    return lambda self, event: [] if isinstance(event, Cancel) else handle(self, event)


PLANTS = [
    (Endings, "_settle", ends_before_its_producers),
    (Edge, "poisons", poisons_along_every_edge),
    (Endings, "_consume", forgets_poison_with_the_slot),
    (Dispatcher, "_keep_regions", restores_nothing),
    (Dispatcher, "_send", sends_early_without_requirement),
    (Submission, "_find_overlaps", forgets_the_readers),
    (ReferenceEngine, "handle", finishes_twice),
    (ReferenceEngine, "handle", sends_to_any_child),
    (ReferenceEngine, "handle", charges_frames_that_never_began),
    (ReferenceEngine, "handle", ignores_a_cancel),
]


@pytest.mark.parametrize(
    ("owner", "name", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS]
)
def test_random_programs_find(owner, name, plant, monkeypatch):
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    assert any(is_found(seed) for seed in range(SEEDS))


def is_found(seed: int) -> bool:
    try:
        hazards, chances = WORLDS[seed % len(WORLDS)]
        world = world_of(seed, hazards, chances)
        expect_end(world)
        if chances is CANCELLED:
            expect_cancel(world)
            return False
        expect_poison(world)
        if hazards is Hazards.FULL:
            expect_values(world)
        (expect_retries if chances is ROUGH else expect_failures)(world)
    except (AssertionError, InternalError, KeyError, ProtocolError):
        return True
    return False


def test_without_a_plant_nothing_is_found():
    assert not any(is_found(seed) for seed in range(20))
