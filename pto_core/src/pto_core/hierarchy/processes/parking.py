"""Forks with every engine thread of the process at a safe point.

A fork copies one thread. What others hold at that moment, a lock or half a change, stays so for
ever in the child. So there is one registry for the process, as there is one fork for all of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol
from weakref import ref


class Parkable(Protocol):
    """Something that has a thread of its own, or lets one in."""

    def park(self) -> None:
        """Return when its thread is at a safe point, and keep it there; may be called nested."""

    def unpark(self) -> None:
        """Let its thread go on."""

    def refuse_inside(self) -> None:
        """Raise UsageError on a thread that is in a call of it: it could not be parked there."""


class ForkLock:
    """Held over every fork; reentrant. What may not happen meanwhile is done when it is free.

    So an engine's own thread need not wait for it, while its holder waits for that thread to park.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._due: list[Callable[[], object]] = []

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take it; says whether."""
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """Let go of it, and do what had to wait."""
        self._lock.release()
        self._catch_up()

    def __enter__(self) -> ForkLock:
        if not self._lock.acquire(blocking=False):
            refuse_inside()  # whoever has it may wait for that call
            self._lock.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def call(self, act: Callable[[], object]) -> None:
        """Call ``act`` with the lock: now or, where another thread has it, when that lets go."""
        self._due.append(act)
        self._catch_up()

    def _catch_up(self) -> None:
        # Whoever fails to take it has added before its holder looks again.
        while self._due and self._lock.acquire(blocking=False):
            try:
                while self._due:
                    self._due.pop(0)()
            finally:
                self._lock.release()


# References without a callback: one in Python would run where an engine goes, and what a signal's
# handler raises there is dropped.
_parkables: list[ref[Parkable]] = []
_fork_lock = ForkLock()


def register_parkable(parkable: Parkable) -> None:
    """Park it at every fork, as long as it lives."""
    global _parkables
    with _fork_lock:
        _parkables = [known for known in _parkables if known() not in (None, parkable)]
        _parkables.append(ref(parkable))


def refuse_inside() -> None:
    """Raise UsageError on a thread that is in a call of a registered one, as in a policy."""
    for known in _parkables:
        parkable = known()
        if parkable is not None:
            parkable.refuse_inside()


def fork_lock() -> ForkLock:
    """Give the lock of this process."""
    return _fork_lock


@contextmanager
def parked() -> Iterator[None]:
    """Within the context every registered thread is parked, and nobody else forks."""
    with _fork_lock, ExitStack() as parking:
        for known in _parkables:
            parkable = known()
            if parkable is not None:
                parkable.park()
                parking.callback(parkable.unpark)
        yield


def _forget() -> None:
    """In a forked process no registered thread exists, and who held the lock is gone."""
    global _fork_lock, _parkables
    _fork_lock = ForkLock()
    _parkables = []


os.register_at_fork(after_in_child=_forget)
