"""Fork while every registered thread of the process waits at a safe point.

A fork copies only the calling thread. A lock that another thread holds would stay locked in the
child forever. The registry of threads is global, because a fork affects the whole process. The
module also has the descriptors that only the parent uses, and the limit of thread pools in
children.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol
from weakref import ref

from pto_core import _worker
from pto_core._worker import SharedMapping
from pto_core.config import adopt_environment, process_environment


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


# Limit numerical libraries to one thread per child, unless the user has set another number.
#
# Otherwise each child would have a thread for every core of the machine, and the children would
# compete for the cores. Libraries read the environment variables when they are loaded. If the
# parent has already loaded a library, its limit is set by a call.

_FOR_ALL = "OMP_NUM_THREADS"
_FAMILIES = {
    "openmp": _FOR_ALL,
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}


def limit_thread_pools() -> None:
    """Limit the thread pools that the user has not configured; called first in a child."""
    environment = process_environment()
    if _FOR_ALL in environment:
        return  # the libraries of all families read this variable
    unset = {family: name for family, name in _FAMILIES.items() if name not in environment}
    _worker.limit_thread_pools(
        threads=1,
        openmp="openmp" in unset,
        openblas="openblas" in unset,
        mkl="mkl" in unset,
        blis="blis" in unset,
    )
    adopt_environment(dict.fromkeys(unset.values(), "1"))


# Descriptors that only the parent uses. Every forked child closes them.
#
# If a child kept the other end of a sibling's pipe open, the exit of the sibling could not be
# detected. The registry is global, because a process has one descriptor table. Children do not
# close descriptors that the program opened.

_parents: set[int] = set()
# A mapping closes its descriptor itself. The weak references have no callback, because the
# exception of a signal handler inside a callback would be lost.
_mappings: list[ref[SharedMapping]] = []


def parent_only(descriptor: int) -> int:
    """Register ``descriptor``, so that every later forked child closes it; return it."""
    with fork_lock():
        _parents.add(descriptor)
    return descriptor


def close_parent_only(descriptor: int) -> None:
    """Close a descriptor in this process; if another thread is forking, close it after the fork."""

    def close() -> None:
        _parents.discard(descriptor)
        os.close(descriptor)

    # otherwise a forking child could close another descriptor with the same number
    fork_lock().call(close)


def parent_only_mapping(mapping: SharedMapping) -> SharedMapping:
    """Register the descriptor of a mapping, which forked children close; return the mapping."""
    global _mappings
    with fork_lock():
        known = [one for one in _mappings if one() is not None]
        _mappings = [*known, ref(mapping)]
    return mapping


def close_in_child(others: Iterable[int] = (), kept: Iterable[int] = ()) -> None:
    """Close the registered descriptors and ``others``, except ``kept``; forked children call it."""
    mappings = [mapping for one in _mappings if (mapping := one()) is not None]
    named = {*_parents, *(one.descriptor for one in mappings), *others}
    for descriptor in named.difference(kept):
        with suppress(OSError):
            os.close(descriptor)
    _parents.clear()
    _mappings.clear()
