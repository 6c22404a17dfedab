"""Long runs of the ring buffer runtime. .ci/nightly runs them; docs/soak.md records the results.

usage: soak.py programs SECONDS [SEED]
       soak.py tasks COUNT

``programs``: random programs in rings of minimal size, in both modes of the simulator and with both
hazards, until the time is over; each must have the result of sequential execution. ``tasks``: one
run of COUNT tasks through a window of 64; the result must be right, and the process must not grow.
Both print a summary; a failure names the seed of its program.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from typing import Any

import numpy as np
from random_program import MIX
from test_results import check_program

from pto_core import In, InOut, Out, open_device

CHAINS, TASKS_OF_A_SCOPE = 8, 16
WARM_TASKS = 20_000
PAGE = os.sysconf("SC_PAGESIZE")
GROWTH_BYTES = 24 * 2**20
"""The process grows by the history for deadlock reports: at most 4 MiB for each ring. All other
memory is allocated before the run.
"""


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def run_programs(seconds: float, seed: int) -> int:
    """Check random programs for some seconds; return their number. The first seed is ``seed``."""
    end = time.monotonic() + seconds
    done = 0
    while time.monotonic() < end:
        for mode in ("threads", "deterministic"):
            for hazards in ("full", "raw"):
                check_program(seed + done, hazards, mode)
        done += 1
    return done


def chains(rt: Any, data: InOut, tasks: int) -> None:
    """Submit pairs of tasks: the first writes a tensor, and the second mixes it into a chain."""
    views = [data[chain : chain + 1] for chain in range(CHAINS)]
    number = 0
    while number < tasks:
        with rt.scope():
            for _ in range(TASKS_OF_A_SCOPE // 2):
                made = rt.tensor(1, np.uint32)
                rt.submit(MIX["aiv"], 1, number, Out(made))
                rt.submit(MIX["aic"], 2, 0, In(made), InOut(views[number // 2 % CHAINS]))
                number += 2


def expected_chains(tasks: int) -> list[int]:
    values = [0] * CHAINS
    for number in range(0, tasks, 2):
        chain = number // 2 % CHAINS
        values[chain] = (3 * values[chain] + number + 1) % 2**32
    return values


def run_tasks(tasks: int) -> int:
    """Run this many tasks; return the number of bytes by which the process grew."""
    settings = {"pto2.task_window": "64", "pto2.heap": "64K", "pto2.tensor_map_pool": "256"}
    resident = []
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        for count in (WARM_TASKS, tasks):
            data = np.zeros(CHAINS, np.uint32)
            report = device.run(chains, data, count, hazards="full")
            resident.append(resident_bytes())
            assert report.tasks == count
            assert data.tolist() == expected_chains(count)
    grown = resident[1] - resident[0]
    assert grown < GROWTH_BYTES, f"{tasks} tasks took {grown} bytes"
    return grown


def main() -> None:
    what, amount, *rest = sys.argv[1:]
    start = time.monotonic()
    if what == "programs":
        seed = int(rest[0]) if rest else secrets.randbits(31)
        print("first seed", seed, flush=True)
        print(run_programs(float(amount), seed), "programs, each in both modes under both hazards")
    else:
        print("grown by", run_tasks(int(amount)), "bytes")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
