"""The programs on pto."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.programs import work
from pto_core import Worker, task


@contextmanager
def pool() -> Iterator[Worker]:
    with Worker(level=3, num_sub_workers=2) as worker:
        yield worker


def map_items(worker: Worker) -> int:
    return sum(worker.map(work.square, range(work.ITEMS)))


load, clean = task(work.load), task(work.clean)


def pipeline(worker: Worker) -> int:
    records = [worker.submit(clean, worker.submit(load, row)) for row in range(work.ROWS)]
    return sum(worker.map(work.total, records))


unreliable = task(work.fails_once, retries=2)


def retries(worker: Worker, markers: list[str]) -> int:
    return sum(worker.map(unreliable, markers))


def shared_array(worker: Worker, array: np.ndarray[Any, Any]) -> int:
    part_sum = partial(work.part_sum, worker.array(array))
    return sum(worker.map(part_sum, range(work.PARTS)))


square, add = task(work.square), task(work.add)


def tree(worker: Worker) -> int:
    waiting = [worker.submit(square, item) for item in range(work.LEAVES)]
    while len(waiting) > 1:
        waiting.append(worker.submit(add, waiting.pop(0), waiting.pop(0)))
    return waiting[0].result()


def calls(worker: Worker) -> int:
    async def main() -> int:
        submit = partial(worker.submit, task(work.wait_a_little))
        return sum(await asyncio.gather(*map(submit, range(work.CALLS))))

    return asyncio.run(main())
