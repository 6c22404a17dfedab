"""The programs on ``concurrent.futures``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from benchmarks.programs import work


@contextmanager
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2) as executor:
        yield executor


def map_items(executor: ProcessPoolExecutor) -> int:
    return sum(executor.map(work.square, range(work.ITEMS), chunksize=125))


def pipeline(executor: ProcessPoolExecutor) -> int:
    records = executor.map(work.load, range(work.ROWS))
    return sum(executor.map(work.total, executor.map(work.clean, records)))


def repeated(marker: str) -> int:
    for _ in range(2):
        try:
            return work.fails_once(marker)
        except OSError:
            pass
    return work.fails_once(marker)


def retries(executor: ProcessPoolExecutor, markers: list[str]) -> int:
    return sum(executor.map(repeated, markers))


def part_sum(path: str, part: int) -> int:
    return work.part_sum(np.load(path, mmap_mode="r"), part)


def shared_array(executor: ProcessPoolExecutor, array: np.ndarray[Any, Any]) -> int:
    with NamedTemporaryFile(dir="/dev/shm", suffix=".npy") as file:
        np.save(file, array)
        file.flush()
        return sum(executor.map(part_sum, [file.name] * work.PARTS, range(work.PARTS)))


def tree(executor: ProcessPoolExecutor) -> int:
    waiting = [executor.submit(work.square, item) for item in range(work.LEAVES)]
    while len(waiting) > 1:
        left, right = waiting.pop(0), waiting.pop(0)
        waiting.append(executor.submit(work.add, left.result(), right.result()))
    return waiting[0].result()


def calls(executor: ProcessPoolExecutor) -> int:
    async def main() -> int:
        loop, numbers = asyncio.get_running_loop(), range(work.CALLS)
        futures = [loop.run_in_executor(executor, work.wait_a_little, one) for one in numbers]
        return sum(await asyncio.gather(*futures))

    return asyncio.run(main())
