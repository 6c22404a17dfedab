"""Random programs in small rings have the result of sequential execution in any order of cores.

Each program starts with rings that are too small. It is repeated with the sizes that the error of
each proven deadlock advises, until it passes with rings of minimal size.
"""

# Invariant of this file: Under `full` hazards, a program without opt-outs (`OUTPUT_EXISTING`,
# `NO_DEP`) gives the result of sequential execution, in any order of cores and with minimal rings.
# Under `raw` hazards, so does a program that never writes memory which an unordered task accesses.

from __future__ import annotations

import random
import secrets
from typing import Any

import numpy as np
import pytest
from random_program import Program, graph, inputs, random_program, run_in_order

from pto_core import open_device
from pto_core.errors import DeadlockError

PROGRAMS, PROGRAMS_AT_FULL_COUNT = 20, 2000
MOST_ATTEMPTS = 12
"""Each attempt raises one setting of one ring; each of four rings has three settings."""
BLOCKS = 2


def small_settings(numbers: random.Random, mode: str) -> dict[str, Any]:
    return {
        "sim.mode": mode,
        "sim.seed": numbers.randrange(2**31),
        "block_dim": numbers.randint(1, BLOCKS),
        "aicpu_thread_num": numbers.randint(1, 4),
        "pto2.task_window": "4",
        "pto2.heap": "3K" if numbers.randrange(2) else "4K,8K,3K,16K",
        "pto2.dep_pool": "128",
        "pto2.tensor_map_pool": "64",
        "pto2.ready_queue_shards": str(numbers.randint(1, 3)),
    }


def run_until_it_fits(
    program: Program, seed: int, hazards: str, settings: dict[str, Any]
) -> tuple[list[Any], int]:
    """Return the result of the program, and how many settings were too small for it."""
    for attempt in range(MOST_ATTEMPTS):
        external = inputs(seed)
        with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
            try:
                device.run(graph(program), *external, hazards=hazards)
            except DeadlockError as error:
                settings.update(error.settings)
                for found, before in zip(external, inputs(seed), strict=True):
                    np.testing.assert_array_equal(found, before)
                continue
        return external, attempt
    raise AssertionError(f"no advice was enough: {settings}")


def check_program(seed: int, hazards: str, mode: str, *, only_inferred: bool | None = None) -> int:
    """Compare a program with its sequential execution; return how many settings were too small."""
    numbers = random.Random(seed)
    is_drawn = bool(numbers.randrange(2))
    only_inferred = is_drawn if only_inferred is None else only_inferred
    program = random_program(seed, hazards, only_inferred=only_inferred)
    if only_inferred and hazards == "full":
        assert all(task.after == [] for task in program.tasks)
    expected = inputs(seed)
    run_in_order(program, expected)
    settings = small_settings(numbers, mode)
    found, attempts = run_until_it_fits(program, seed, hazards, settings)
    for number, (mine, right) in enumerate(zip(found, expected, strict=True)):
        message = f"buffer {number} differs: seed {seed}, hazards {hazards}, settings {settings}"
        np.testing.assert_array_equal(mine, right, err_msg=message)
    return attempts


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
@pytest.mark.parametrize("hazards", ["full", "raw"])
def test_random_programs(hazards: str, mode: str, request: pytest.FixtureRequest) -> None:
    """Test 20 programs, or 2,000 with --full. A failure names the seed of its program."""
    full = request.config.getoption("full")
    first = secrets.randbits(31)
    print("first seed", first)
    attempts = 0
    for seed in range(first, first + (PROGRAMS_AT_FULL_COUNT if full else PROGRAMS)):
        print("seed", seed)
        attempts += check_program(seed, hazards, mode)
    print("settings that were too small", attempts)
    assert attempts > 0


def test_full_hazards_order_conflicting_tasks() -> None:
    """The programs state no edges, so only the runtime keeps conflicting tasks in order."""
    for seed in range(5):
        check_program(seed, "full", "threads", only_inferred=True)
