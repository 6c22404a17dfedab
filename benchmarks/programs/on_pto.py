"""The programs on pto."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
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


load, clean, total = task(work.load), task(work.clean), task(work.total)


def pipeline(worker: Worker) -> int:
    with worker.session() as s:
        rows = range(work.ROWS)
        handles = [s.submit(total, s.submit(clean, s.submit(load, row))) for row in rows]
        return sum(handle.result() for handle in handles)


unreliable = task(work.fails_once, retries=2)


def retries(worker: Worker, markers: list[str]) -> int:
    return sum(worker.map(unreliable, markers))


part_sum = task(work.part_sum)


def shared_array(worker: Worker, array: np.ndarray[Any, Any]) -> int:
    with worker.session() as s:
        shared = worker.array(array)
        handles = [s.submit(part_sum, shared, part) for part in range(work.PARTS)]
        return sum(handle.result() for handle in handles)


square, add = task(work.square), task(work.add)


def tree(worker: Worker) -> int:
    with worker.session() as s:
        waiting = [s.submit(square, item) for item in range(work.LEAVES)]
        while len(waiting) > 1:
            waiting.append(s.submit(add, waiting.pop(0), waiting.pop(0)))
        return waiting[0].result()


wait_a_little = task(work.wait_a_little)


def calls(worker: Worker) -> int:
    async def main() -> int:
        async with worker.session() as s:
            handles = [s.submit(wait_a_little, number) for number in range(work.CALLS)]
            return sum(await asyncio.gather(*handles))

    return asyncio.run(main())
