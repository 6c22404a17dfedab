"""A random graph has the same result when it is replayed as when it is submitted."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pytest
from memory_programs import (
    ARGUMENTS,
    CONSTANTS,
    RING_BYTES,
    Programmer,
    sequential,
    submits,
    work_with_delays,
)
from sequential_programs import INOUT, WORDS
from task_arguments import given

from pto_core import TaskArgs

CHILDREN = 3


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    if request.config.getoption("--full"):
        return [secrets.randbits(32) for _ in range(100)]
    return list(range(5))


def all_of(rows: Any) -> TaskArgs:
    return given(*((row, INOUT) for row in rows))


def begin(rows: Any, seed: int) -> Any:
    """Fill the arrays with the initial values for a seed, and return a copy of them."""
    rows[:] = np.arange(len(rows) * WORDS).reshape(rows.shape) * 7 + seed % 1000
    return rows.copy()


@pytest.mark.parametrize("hazards", ["raw", "full"])
def test_a_replay_writes_the_same_bytes_as_a_run(make: Any, hazards: str, seeds: list[int]) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=16, heap_ring_size=RING_BYTES)
    handle = worker.register(work_with_delays)
    sets = [worker.shared_array((ARGUMENTS, WORDS), "int64") for _ in range(2)]
    constants = worker.shared_array((CONSTANTS, WORDS), "int64")
    for seed in seeds:
        steps = Programmer(seed, CHILDREN, hazards).program()
        graph = submits(handle, steps, constants)
        expected = np.concatenate([begin(sets[0], seed), begin(constants, seed)])
        sequential(steps, expected)
        worker.run(graph, all_of(sets[0]), hazards=hazards)
        of_the_run = np.concatenate([sets[0], constants])
        np.testing.assert_array_equal(of_the_run, expected, f"the run, seed {seed}")
        begin(constants, seed)
        captured = worker.capture(graph, all_of(sets[1]), hazards=hazards)
        for arguments in (sets[1], sets[0], sets[0]):
            begin(arguments, seed)
            begin(constants, seed)
            worker.replay(captured, all_of(arguments))
            found = np.concatenate([arguments, constants])
            np.testing.assert_array_equal(found, of_the_run, f"seed {seed}")
