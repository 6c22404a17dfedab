"""Wakes coroutines that await tasks: one file descriptor for each Worker, and no threads.

The driver makes its descriptor readable when a watched task ends. Every event loop that awaits a
task watches this descriptor. The first loop that reads it takes the list of ended tasks, wakes its
own coroutines, and notifies the other loops of the tasks that they await.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_core._worker import Driver, TaskHandle

_Future = asyncio.Future[None]


class EventLoops:
    """The event loops that await tasks of one Worker.

    The lock protects both dictionaries and the descriptor, because event loops run on several
    threads. The descriptor exists only while a coroutine waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, set[_Future]] = {}
        self._counts: dict[asyncio.AbstractEventLoop, int] = {}

    def wait(self, handle: TaskHandle) -> Generator[Any, None, None]:
        """Suspend the coroutine until the task has ended.

        Raises the same errors as a blocking wait: WorkerClosedError, or a failure of the driver.
        """
        driver, task = handle.driver, handle.task_slot
        while not handle.done:
            future = self._add(driver, task)
            try:
                if driver.watch(task):
                    return
                yield from future
            finally:
                self._remove(driver, task, future)

    def _add(self, driver: Driver, task: int) -> _Future:
        loop = asyncio.get_running_loop()
        future: _Future = loop.create_future()
        with self._lock:
            descriptor = driver.watch_descriptor()
            if loop not in self._counts:
                loop.add_reader(descriptor, partial(self._wake, driver))
            self._counts[loop] = self._counts.get(loop, 0) + 1
            self._futures.setdefault(task, set()).add(future)
        return future

    def _remove(self, driver: Driver, task: int, future: _Future) -> None:
        loop = future.get_loop()
        with self._lock:
            futures = self._futures[task]
            futures.discard(future)
            if not futures:
                del self._futures[task]
            self._counts[loop] -= 1
            if self._counts[loop] == 0:
                del self._counts[loop]
                loop.remove_reader(driver.watch_descriptor())
            if not self._counts:
                driver.stop_watching()

    def _wake(self, driver: Driver) -> None:
        ended = driver.take_watched()
        with self._lock:
            futures = [future for task in ended for future in self._futures.get(task, ())]
        for future in futures:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: _Future) -> None:
    if not future.done():  # the future may have been cancelled
        future.set_result(None)
