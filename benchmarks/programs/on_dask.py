"""The programs on Dask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from benchmarks.programs import work


@contextmanager
def pool() -> Iterator[Client]:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client


def map_items(client: Client) -> int:
    items = range(work.ITEMS)
    return sum(client.gather(client.map(work.square, items, batch_size=125, pure=False)))


def pipeline(client: Client) -> int:
    records = client.map(work.clean, client.map(work.load, range(work.ROWS), pure=False))
    return sum(client.gather(client.map(work.total, records)))


def retries(client: Client, markers: list[str]) -> int:
    return sum(client.gather(client.map(work.fails_once, markers, retries=2)))


def shared_array(client: Client, array: np.ndarray[Any, Any]) -> int:
    [shared] = client.scatter([array], broadcast=True, hash=False)
    parts = range(work.PARTS)
    return sum(client.gather([client.submit(work.part_sum, shared, part) for part in parts]))


def tree(client: Client) -> int:
    waiting = client.map(work.square, range(work.LEAVES), pure=False)
    while len(waiting) > 1:
        waiting.append(client.submit(work.add, waiting.pop(0), waiting.pop(0), pure=False))
    return waiting[0].result()


def calls(client: Client) -> int:
    async def main() -> int:
        futures = client.map(work.wait_a_little, range(work.CALLS), pure=False)
        return sum(await asyncio.to_thread(client.gather, futures))

    return asyncio.run(main())
