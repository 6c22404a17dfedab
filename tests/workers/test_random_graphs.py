"""Random graphs return the results of sequential execution, also if some of their tasks fail."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from sequential_programs import ARRAYS, WORDS, Step, program, sequential, submit_all, work

from pto_core.errors import TaskFailedError

SEEDS = 12


def check(worker: Any, handle: Any, memory: Any, steps: list[Step], seed: int) -> None:
    memory[:] = np.arange(ARRAYS)[:, None]
    expected = memory.copy()
    failed, poisoned = sequential(steps, expected)
    chosen = random.Random(seed)
    error = None
    try:
        worker.run(
            lambda orch, args, cfg: submit_all(orch, handle, steps, memory, chosen), hazards="full"
        )
    except TaskFailedError as caught:
        error = caught
    np.testing.assert_array_equal(memory, expected, f"seed {seed}")
    assert (error is None) == (not failed)
    if error is not None:  # compare the counts only: buffers have task numbers, too
        assert 1 + len(error.failures) == len(failed), f"seed {seed}"
        assert len(error.poisoned) == len(poisoned), f"seed {seed}"


@pytest.mark.parametrize("failures", [0.0, 0.04], ids=["whole", "failing"])
@pytest.mark.parametrize("children", [1, 3])
def test_any_graph_has_the_sequential_result(make, children: int, failures: float) -> None:
    worker = make(num_sub_workers=children, child_window=4, heap_ring_size=1 << 16)
    handle = worker.register(work)
    memory = worker.shared_array((ARRAYS, WORDS), "int64")
    for seed in range(SEEDS):
        check(worker, handle, memory, program(random.Random(seed), children, failures), seed)
