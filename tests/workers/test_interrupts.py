"""Ctrl-C while the block of a session runs, and while the end of one is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from pto_core import Out, task


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def hang(out: Out) -> None:
    while True:
        time.sleep(1)


def still_works(worker: Any) -> None:
    out = worker.shared_array(8)
    with worker.session() as s:
        s.submit(write, 4, out)
    assert (out == 4).all()


def interrupted_in(worker: Any, body: Any) -> float:
    """Interrupt the block of a session; give how long it took until that was raised."""
    began = 0.0
    with pytest.raises(KeyboardInterrupt), worker.session() as s:  # noqa: PT012
        body(s)
        began = time.monotonic()
        raise KeyboardInterrupt
    return time.monotonic() - began


def test_an_interrupt_in_the_block_waits_some_time_for_what_runs(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))

    def submit(s: Any) -> None:
        s.submit(hang, rows[0])
        s.submit(write, 1, rows[1])
        until_sent(worker)

    assert 1 < interrupted_in(worker, submit) < 20
    assert rows[1, 0] == 0
    still_works(worker)


def test_another_interrupt_cuts_that_time_short(make) -> None:
    """The best of some times, each without one of the children: a busy machine may be slow."""
    worker = make(num_sub_workers=4, on_worker_death="reroute")
    out = worker.shared_array(8)

    def submit(s: Any) -> None:
        s.submit(hang, out)
        until_sent(worker)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    assert min(interrupted_in(worker, submit) for _ in range(3)) < 1.9
    still_works(worker)


def until_sent(worker: Any) -> None:
    limit = time.monotonic() + 20
    while worker.statistics()["in_flight"] == 0 and time.monotonic() < limit:
        time.sleep(0.001)


def test_a_cancelled_wait_for_the_end_of_a_block_ends_the_run(make) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)

    async def block() -> None:
        async with worker.session() as s:
            s.submit(hang, out)

    async def main() -> None:
        running = asyncio.ensure_future(block())
        limit = time.monotonic() + 20
        while worker.statistics()["in_flight"] == 0 and time.monotonic() < limit:
            await asyncio.sleep(0.001)
        running.cancel()
        await running

    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert time.monotonic() - began < 20
    still_works(worker)
