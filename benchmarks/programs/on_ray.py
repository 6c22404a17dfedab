"""The programs on Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray

from benchmarks.programs import work


@contextmanager
def pool() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


square, add = ray.remote(work.square), ray.remote(work.add)


def map_items(_: None) -> int:
    return sum(ray.get([square.remote(item) for item in range(work.ITEMS)]))


load, clean, total = ray.remote(work.load), ray.remote(work.clean), ray.remote(work.total)


def pipeline(_: None) -> int:
    rows = range(work.ROWS)
    return sum(ray.get([total.remote(clean.remote(load.remote(row))) for row in rows]))


unreliable = ray.remote(max_retries=2, retry_exceptions=True)(work.fails_once)


def retries(_: None, markers: list[str]) -> int:
    return sum(ray.get([unreliable.remote(marker) for marker in markers]))


part_sum = ray.remote(work.part_sum)


def shared_array(_: None, array: np.ndarray[Any, Any]) -> int:
    shared = ray.put(array)
    return sum(ray.get([part_sum.remote(shared, part) for part in range(work.PARTS)]))


def tree(_: None) -> int:
    waiting = [square.remote(item) for item in range(work.LEAVES)]
    while len(waiting) > 1:
        waiting.append(add.remote(waiting.pop(0), waiting.pop(0)))
    return ray.get(waiting[0])


wait_a_little = ray.remote(work.wait_a_little)


def calls(_: None) -> int:
    async def main() -> int:
        return sum(await asyncio.gather(*map(wait_a_little.remote, range(work.CALLS))))

    return asyncio.run(main())
