"""The contract of placement policies."""

from __future__ import annotations

import random

from pto_core.hierarchy.engine.events import NONE, Hazards
from pto_devkit.failure import expect
from pto_devkit.random_seed import random_numbers
from pto_devkit.schedulers.engines import CALM, ROUGH
from pto_devkit.schedulers.subject import SchedulerSubject
from pto_devkit.schedulers.verdicts import expect_end, expect_failures, expect_values

_DECISIONS = 2000
_CHILDREN = 16


def check_picks_a_candidate(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that the policy returns one of the candidates."""
    with random_numbers(seed) as numbers:
        policy = scheduler.policy()
        for _ in range(_DECISIONS):
            candidates, preferred = _question(numbers)
            picked = policy(list(candidates), preferred)
            expect(
                isinstance(picked, int) and picked in dict(candidates),
                f"picked {picked!r} of {candidates}, preferred {preferred}",
            )


def check_arguments_stay(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that the policy does not change the list of candidates."""
    with random_numbers(seed) as numbers:
        policy = scheduler.policy()
        for _ in range(_DECISIONS):
            candidates, preferred = _question(numbers)
            given = list(candidates)
            policy(given, preferred)
            expect(given == candidates, f"the policy changed {candidates} to {given}")


def check_runs_with_policy(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that random programs that use the policy complete with the right values."""
    with random_numbers(seed) as numbers:
        for chances in (CALM, ROUGH) * 10:
            world = scheduler.run(numbers, Hazards.FULL, chances, validates=False)
            expect_end(world)
            expect_values(world)
            if chances is CALM:
                expect_failures(world)


def _question(numbers: random.Random) -> tuple[list[tuple[int, int]], int]:
    children = sorted(numbers.sample(range(_CHILDREN), numbers.randint(1, _CHILDREN)))
    candidates = [(child, numbers.choice([0, 0, 1, 5, 63])) for child in children]
    return candidates, numbers.choice([NONE, numbers.randrange(_CHILDREN)])
