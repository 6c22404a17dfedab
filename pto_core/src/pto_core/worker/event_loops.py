"""Wakes coroutines that await tasks: one file descriptor for each Worker.

The driver makes its descriptor readable when a watched task ends. Every event loop that awaits a
task watches this descriptor. The first loop that reads it takes the list of ended tasks, wakes its
own coroutines, and notifies the other loops of the tasks that they await. A Worker has an event
loop of its own, on a thread, only while handles with callbacks or waiters need a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pto_core import log
from pto_core.errors import PtoError
from pto_core.errors.limits import start_thread

if TYPE_CHECKING:
    from pto_core._worker import Driver, TaskHandle

_Future = asyncio.Future[None]
T = TypeVar("T")


async def in_thread(call: Callable[[], T], interrupt: Callable[[], object]) -> T:
    """Call a function on another thread, without blocking the event loop; return its result.

    If the coroutine is cancelled, call ``interrupt()``, wait until the function has returned,
    because it still uses the Worker, and raise the cancellation.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            interrupt()
            await asyncio.wait([running])
        running.exception()  # mark it as retrieved; the cancellation is raised instead
        raise


class EventLoops:
    """The event loops that await tasks of one Worker.

    The lock protects both dictionaries and the descriptor, because event loops run on several
    threads. The descriptor exists only while a coroutine waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, set[_Future]] = {}
        self._counts: dict[asyncio.AbstractEventLoop, int] = {}

    async def wait(self, handle: TaskHandle) -> None:
        """Suspend the coroutine until the task has ended or was cancelled.

        Raises the same errors as a blocking wait: WorkerClosedError, or a failure of the driver.
        """
        driver, task = handle.driver, handle.task_slot
        while not handle.done():
            future = self._add(driver, task)
            try:
                if driver.watch(task):
                    return
                await future
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
        self.wake(driver.take_watched())

    def wake(self, tasks: Iterable[int]) -> None:
        """Let the coroutines that await these tasks check them again."""
        with self._lock:
            futures = [future for task in tasks for future in self._futures.get(task, ())]
        for future in futures:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                future.get_loop().call_soon_threadsafe(_finish, future)


class Notifier:
    """The thread of a Worker that calls ``notify()`` of handles whose tasks have ended.

    The thread runs an event loop, and exists only while handles wait for that call.
    """

    def __init__(self, event_loops: EventLoops) -> None:
        self._event_loops = event_loops
        self._lock = threading.Lock()
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def add(self, handle: TaskHandle) -> None:
        """Call ``handle.notify()`` when its task has ended, or cannot end because of an error.

        Raises CapacityError if the thread cannot be started.
        """
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run, args=(loop,), name="pto futures", daemon=True
                )
                try:
                    start_thread(thread)
                except BaseException:
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            self._count += 1
            self._loop.call_soon_threadsafe(self._begin, handle)

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread after the end of all tasks, except inside of it."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _begin(self, handle: TaskHandle) -> None:
        asyncio.get_running_loop().create_task(self._follow(handle))

    async def _follow(self, handle: TaskHandle) -> None:
        try:
            await self._event_loops.wait(handle)
        except PtoError:
            pass  # result() raises it
        except Exception as error:  # noqa: BLE001 - its waiters must be notified in any case
            log.get(__name__).error("wait for a task failed", error=repr(error))
        try:
            handle.notify()
        except BaseException as error:  # noqa: BLE001 - other handles need the loop
            log.get(__name__).error("callback of a task ended its thread", error=repr(error))
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._loop is not None:
                self._loop.stop()
                self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _finish(future: _Future) -> None:
    if not future.done():  # the future may have been cancelled
        future.set_result(None)
