"""Run random programs, in rings of minimal size, with seeds of the deterministic mode.

usage: sweep_rings.py FIRST LAST

Each program runs with SEEDS_OF_A_PROGRAM seeds. Its rings have the sizes that the errors of its
proven deadlocks advise. For each seed, the program prints the seed, the trace hash, and "ok" or the
first buffer that differs from sequential execution. It stops after the first wrong seed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from random_program import Program, graph, inputs, random_program, run_in_order

from pto_core import open_device
from pto_core.errors import DeadlockError

SEEDS_OF_A_PROGRAM = 50
SMALLEST = {
    "pto2.task_window": "4",
    "pto2.heap": "3K",
    "pto2.dep_pool": "128",
    "pto2.tensor_map_pool": "64",
}
HAZARDS = ("full", "raw")
THREADS = (4, 2, 3, 1)


def run(
    program: Program, number: int, seed: int, settings: dict[str, str]
) -> tuple[int, list[Any]]:
    """Return the trace hash and the result of the program."""
    external = inputs(number)
    with open_device(
        "a2a3sim",
        runtime="pto2",
        sim__mode="deterministic",
        sim__seed=seed,
        block_dim=2,
        aicpu_thread_num=THREADS[number % len(THREADS)],
        settings=settings,
    ) as device:
        report = device.run(graph(program), *external, hazards=HAZARDS[number % 2])
    return report.trace_hash, external


def settings_that_fit(program: Program, number: int) -> dict[str, str]:
    settings = dict(SMALLEST)
    while True:
        try:
            run(program, number, 0, settings)
        except DeadlockError as error:
            settings.update(error.settings)
        else:
            return settings


def main() -> None:
    first, last = map(int, sys.argv[1:])
    number = -1
    for seed in range(first, last):
        if seed // SEEDS_OF_A_PROGRAM != number:
            number = seed // SEEDS_OF_A_PROGRAM
            program = random_program(number, HAZARDS[number % 2])
            right = inputs(number)
            run_in_order(program, right)
            settings = settings_that_fit(program, number)
        trace, found = run(program, number, seed, settings)
        pairs = enumerate(zip(found, right, strict=True))
        wrong = [f"buffer:{place}" for place, pair in pairs if not np.array_equal(*pair)]
        print(seed, f"{trace:016x}", wrong[0] if wrong else "ok", flush=True)
        if wrong:
            return


main()
