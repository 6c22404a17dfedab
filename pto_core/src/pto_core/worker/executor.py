"""An executor of ``concurrent.futures`` whose functions run in the SUB children of a Worker."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from pto_core.errors import (
    AbortedError,
    ChildDiedError,
    TaskFailedError,
    WorkerClosedError,
)
from pto_core.errors.limits import start_thread
from pto_core.worker.futures import TaskHandle
from pto_core.worker.session import SharedSession, TaskSubmitter, call_of, called
from pto_core.worker.tasks import Task, task, unbound

P = ParamSpec("P")
T = TypeVar("T")


@task
def _call(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    return function(*args, **keywords)


@task
def _starred(function: Callable[..., T], items: Mapping[int, Sequence[Any]]) -> list[T]:
    return called(lambda item: function(*item), items)


_call.calls_argument = _starred.calls_argument = True


class WorkerExecutor(concurrent.futures.Executor):
    """Runs functions in the SUB children of a Worker; created by :meth:`Worker.executor`.

    The first submit begins a session, which :meth:`shutdown` ends. Other sessions run beside it; a
    capture or a replay waits until then. Any thread may call the methods. Functions, arguments and
    results are those of a ``@task``; a handle as an argument is the result that it will have.
    """

    def __init__(self, shared: SharedSession) -> None:
        self._shared = shared
        self._is_shut_down = False
        self._handles: weakref.WeakSet[TaskHandle] = weakref.WeakSet()
        self._end: threading.Thread | None = None
        # calls of an executor that no variable keeps run to their ends, too
        weakref.finalize(self, _end_in_thread, shared).atexit = False

    __reduce__ = TaskSubmitter.__reduce__

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[T]:
        """Submit a call of a function; return its handle.

        Raises RuntimeError after :meth:`shutdown`, and UsageError for what cannot be pickled.
        """
        with self._shared.held():
            if self._is_shut_down:
                raise RuntimeError("this executor was shut down; create another one")
            session = self._shared.begin()
            target, given, keywords = unbound(fn, args, kwargs)
            if target is _starred:
                handle: TaskHandle[T] = session.submit(call_of(_starred, args[0]), *args)
            elif isinstance(target, Task) and target.is_task_per_call:
                by_position, rest = target.bound(given, keywords)
                # apart from the options of submit, which have precedence over keywords
                whole: Any = functools.partial(target, **rest)
                handle = session.submit(whole, *by_position)
            else:
                handle = session.submit(call_of(_call, fn), fn, args, kwargs)
            self._handles.add(handle)
            return handle

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Submit a call for each item; return an iterator over the results, in order.

        ``chunksize``: the number of calls of one task; 1 for a ``@task`` with retries, or that
        writes into arrays. Raises ValueError if it is less than 1.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}; pass 1 or more")
        target = unbound(fn)[0]
        if chunksize == 1 or (isinstance(target, Task) and target.is_task_per_call):
            return super().map(fn, *iterables, timeout=timeout)
        items = enumerate(zip(*iterables, strict=False))
        chunks = iter(lambda: dict(itertools.islice(items, chunksize)), {})
        return itertools.chain.from_iterable(
            super().map(_starred, itertools.repeat(fn), chunks, timeout=timeout)
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and end the session when all calls have ended.

        ``wait``: wait for that end; otherwise a thread waits for it. ``cancel_futures``: cancel the
        calls that have not begun.
        """
        with self._shared.held():
            self._is_shut_down = True
            if cancel_futures:
                for handle in list(self._handles):
                    handle.cancel()
            if self._end is None:
                self._end = _end_in_thread(self._shared)
        if wait and self._end is not None:
            self._end.join()


def _end_in_thread(shared: SharedSession) -> threading.Thread | None:
    """Begin to end the session, if one is open; return the thread that waits for its end."""
    if shared.session is None:
        return None
    end = threading.Thread(target=_leave, args=(shared,), name="pto executor")
    start_thread(end)
    return end


def _leave(shared: SharedSession) -> None:
    """End the session. Failures are in the handles; the executor raises none."""
    with contextlib.suppress(AbortedError, ChildDiedError, TaskFailedError, WorkerClosedError):
        shared.end()
