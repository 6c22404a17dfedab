"""Fork while every registered thread of the process waits at a safe point.

A fork copies only the calling thread. A lock that another thread holds would stay locked in the
child forever. The registry of threads is global, because a fork affects the whole process.
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
        """Let the object's thread continue after :meth:`park`."""

    def refuse_inside(self) -> None:
        """Raise UsageError if this thread is inside a call of the object; it cannot be parked."""


class ForkLock:
    """The reentrant lock that a thread holds while it forks.

    Actions that must not run during a fork are deferred to its end. Otherwise the thread of a
    driver could wait for the lock, while the owner of the lock waits until this thread is parked.
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
            refuse_inside()  # the owner of the lock may be waiting for the end of such a call
            self._lock.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def call(self, act: Callable[[], object]) -> None:
        """Call ``act`` under the lock: at once, or when the current owner releases the lock."""
        self._due.append(act)
        self._catch_up()

    def _catch_up(self) -> None:
        # If a thread cannot take the lock, its action is in the list, and the owner checks the list
        # after the release.
        while self._due and self._lock.acquire(blocking=False):
            try:
                while self._due:
                    self._due.pop(0)()
            finally:
                self._lock.release()


# The weak references have no callback, because the exception of a signal handler inside a callback
# would be lost.
_parkables: list[ref[Parkable]] = []
_fork_lock = ForkLock()


def register_parkable(parkable: Parkable) -> None:
    """Register an object, so that every fork parks it while it exists."""
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
    """Park every registered thread and prevent other forks during a ``with`` block."""
    with _fork_lock, ExitStack() as parking:
        for known in _parkables:
            parkable = known()
            if parkable is not None:
                parkable.park()
                parking.callback(parkable.unpark)
        yield


def _forget() -> None:
    """Clear the registry in a forked process, in which the registered threads do not exist."""
    global _fork_lock, _parkables
    _fork_lock = ForkLock()
    _parkables = []


os.register_at_fork(after_in_child=_forget)
