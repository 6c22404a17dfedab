"""Fork while every registered thread of the process waits at a safe point.

A fork copies only the calling thread, so a lock that another thread holds stays locked in the child
forever. The registry of threads is global, because a fork affects the whole process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol
from weakref import ref


class Parkable(Protocol):
    """An object that has its own thread, or that several threads call."""

    def park(self) -> None:
        """Wait until the object's thread is at a safe point, and keep it there; calls may nest."""

    def unpark(self) -> None:
        """Let the object's thread continue."""

    def refuse_inside(self) -> None:
        """Raise UsageError if this thread is inside a call of the object and cannot be parked."""


class ForkLock:
    """The reentrant lock that is held during every fork.

    Actions that must not run during a fork are deferred to its end. Without this, the thread of a
    driver could wait for the lock while the owner of the lock waits for that thread to park.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._due: list[Callable[[], object]] = []

    def acquire(self, *, blocking: bool = True) -> bool:
        """Try to take the lock; return whether it was taken."""
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """Release the lock and run the deferred actions."""
        self._lock.release()
        self._catch_up()

    def __enter__(self) -> ForkLock:
        if not self._lock.acquire(blocking=False):
            refuse_inside()  # the owner may be waiting for that call
            self._lock.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def call(self, act: Callable[[], object]) -> None:
        """Call ``act`` while the lock is held: now, or when the current owner releases it."""
        self._due.append(act)
        self._catch_up()

    def _catch_up(self) -> None:
        # A thread that fails to take the lock has added its action before the owner checks again.
        while self._due and self._lock.acquire(blocking=False):
            try:
                while self._due:
                    self._due.pop(0)()
            finally:
                self._lock.release()


# The weak references have no callback: an exception of a signal handler would be lost in it.
_parkables: list[ref[Parkable]] = []
_fork_lock = ForkLock()


def register_parkable(parkable: Parkable) -> None:
    """Register an object, so that every fork parks it as long as it lives."""
    global _parkables
    with _fork_lock:
        _parkables = [known for known in _parkables if known() not in (None, parkable)]
        _parkables.append(ref(parkable))


def refuse_inside() -> None:
    """Raise UsageError if this thread is inside a call of a registered object, such as a policy."""
    for known in _parkables:
        parkable = known()
        if parkable is not None:
            parkable.refuse_inside()


def fork_lock() -> ForkLock:
    """Return the fork lock of this process."""
    return _fork_lock


@contextmanager
def parked() -> Iterator[None]:
    """Park every registered thread and exclude other forks while the context is active."""
    with _fork_lock, ExitStack() as parking:
        for known in _parkables:
            parkable = known()
            if parkable is not None:
                parkable.park()
                parking.callback(parkable.unpark)
        yield


def _forget() -> None:
    """Reset the registry in a forked process, where no registered thread exists."""
    global _fork_lock, _parkables
    _fork_lock = ForkLock()
    _parkables = []


os.register_at_fork(after_in_child=_forget)
