"""The life cycle of a Worker: a state machine that any thread may call at any time.

A Worker changes from NEW to STARTING to RUNNING; if its start fails, it returns to NEW. From each
of these states it can change to CLOSING and then to CLOSED. One thread starts the Worker; calls
that need children wait until the start has ended. ``close()`` during the start cancels it, and the
starting thread then stops the children.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from pto_core.errors import UsageError, WorkerClosedError
from pto_core.worker.processes import refuse_inside

_NAP_S = 0.002


class WorkerState(Enum):
    """The state of a Worker; the value is the text in messages."""

    NEW = "not started"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class LifeCycle:
    """The life cycle of one Worker.

    The lock is held only during transitions, so any thread and any signal handler can take it. It
    is reentrant, because a signal handler runs on the thread that it interrupts. A process that
    receives a copy of this object creates a new lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = WorkerState.NEW
        self._above: LifeCycle | None = None  # the life cycle of the parent Worker, if any
        self._thread = 0  # the thread that starts or closes the Worker
        self._process = os.getpid()

    def __reduce__(self) -> Any:
        return LifeCycle, ()

    @property
    def is_child(self) -> bool:
        """Whether the Worker was added to another Worker as a child."""
        return self._above is not None

    @property
    def is_new(self) -> bool:
        """Whether neither this Worker nor one of its ancestors has begun to start."""
        return self.state is WorkerState.NEW and (self._above is None or self._above.is_new)

    def add_to(self, above: LifeCycle) -> bool:
        """Make the Worker a child of ``above``. Return False unless it is new and has no parent."""
        with self.lock:
            if self.state is not WorkerState.NEW or self.is_child:
                return False
            self._above = above
            return True

    def remove_from_above(self) -> None:
        """Revert :meth:`add_to`."""
        self._above = None

    def check_open(self) -> None:
        """Raise WorkerClosedError after close(), and UsageError in a forked process."""
        if self.state in (WorkerState.CLOSING, WorkerState.CLOSED):
            raise WorkerClosedError(f"this Worker is {self.state.value}; create another one")
        if self.state is not WorkerState.NEW and self._process != os.getpid():
            raise UsageError(
                f"this Worker belongs to process {self._process}, which forked this one; a task "
                "cannot submit tasks: submit them in that process, or create a Worker in this one"
            )

    def settled(self, call: str) -> WorkerState:
        """Return NEW or RUNNING; while the Worker is starting, wait for the end of the start.

        Raises the errors of :meth:`check_open`. Raises UsageError, which names ``call``, if this
        thread is starting the Worker, or if its parent started it in another process.
        """
        above = self._above
        if above is not None and above.settled(call) is not WorkerState.NEW:
            self.check_open()
            raise UsageError(
                f"{call}() was called on a Worker that init() of its parent Worker has started in "
                "another process; call it before that init()"
            )
        while True:
            self.check_open()
            state = self.state
            if state is WorkerState.NEW or state is WorkerState.RUNNING:
                return state
            self._nap(call)

    def begin_start(self) -> bool:
        """Change from NEW to STARTING. Return False in another state, or for a child Worker."""
        with self.lock:
            if self.state is not WorkerState.NEW or self.is_child:
                return False
            self.state = WorkerState.STARTING
            self._thread = threading.get_ident()
            self._process = os.getpid()
            return True

    def end_start(self, state: WorkerState) -> bool:
        """Change from STARTING to RUNNING or NEW. Return False if close() was called meanwhile."""
        with self.lock:
            if self.state is not WorkerState.STARTING:
                return False
            self.state = state
            return True

    def begin_close(self) -> bool:
        """Change to CLOSING. Return whether the calling thread must stop the children."""
        with self.lock:
            if self.state in (WorkerState.CLOSING, WorkerState.CLOSED):
                return False
            is_ours = self.state is not WorkerState.STARTING
            if is_ours:
                self._thread = threading.get_ident()
            self.state = WorkerState.CLOSING
            return is_ours

    def end_close(self) -> None:
        """Change from CLOSING to CLOSED."""
        self.state = WorkerState.CLOSED

    def await_closed(self) -> None:
        """Wait until another thread has closed the Worker.

        If the calling thread itself closes the Worker, it returns at once: it can be here only in a
        signal handler that interrupted close().
        """
        is_here = self._process == os.getpid() and self._thread != threading.get_ident()
        while is_here and self.state is not WorkerState.CLOSED:
            time.sleep(_NAP_S)

    def _nap(self, call: str) -> None:
        if self._thread == threading.get_ident():
            raise UsageError(
                f"{call}() was called inside init() of the same Worker, as in a signal "
                "handler; call it when init() has returned"
            )
        refuse_inside()
        time.sleep(_NAP_S)


class Exclusive:
    """A lock that one thread cannot take twice.

    A signal handler must not wait for the thread that it interrupts, so its call is refused.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_taken = False

    def __reduce__(self) -> Any:
        return Exclusive, ()

    @contextmanager
    def entered(self, call: str) -> Iterator[None]:
        """Take the lock for ``call``. Raises UsageError if this thread has the lock already."""
        if not self._lock.acquire(blocking=False):
            refuse_inside()  # the owner of the lock may be waiting for the end of such a call
            self._lock.acquire()
        try:
            if self._is_taken:
                raise UsageError(
                    f"{call}() inside a call of register(), unregister(), add_worker() or "
                    "remove_worker() on the same thread; call it when that has returned"
                )
            self._is_taken = True
            try:
                yield
            finally:
                self._is_taken = False
        finally:
            self._lock.release()
