"""Forks with every engine thread of the process at a safe point.

A fork copies one thread. What others hold at that moment, a lock or half a change, stays so for
ever in the child. So there is one registry for the process, as there is one fork for all of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol
from weakref import WeakSet


class Parkable(Protocol):
    """Something that has a thread of its own, or lets one in."""

    def park(self) -> None:
        """Return when its thread is at a safe point, and keep it there; may be called nested."""

    def unpark(self) -> None:
        """Let its thread go on."""


_parkables: WeakSet[Parkable] = WeakSet()
_fork_lock = threading.RLock()


def register_parkable(parkable: Parkable) -> None:
    """Park it at every fork, as long as it lives."""
    with _fork_lock:
        _parkables.add(parkable)


def fork_lock() -> threading.RLock:
    """Give the lock that is held over every fork; reentrant."""
    return _fork_lock


@contextmanager
def parked() -> Iterator[None]:
    """Within the context every registered thread is parked, and nobody else forks."""
    with _fork_lock, ExitStack() as parking:
        for parkable in list(_parkables):
            parkable.park()
            parking.callback(parkable.unpark)
        yield


def _forget() -> None:
    """In a forked process no registered thread exists, and who held the lock is gone."""
    global _fork_lock, _parkables
    _fork_lock = threading.RLock()
    _parkables = WeakSet()


os.register_at_fork(after_in_child=_forget)
