"""Descriptors that only the parent uses. Every forked child closes them.

If a child kept the other end of a sibling's pipe open, the exit of the sibling could not be
detected. The registry is global, because a process has one descriptor table. Children do not close
descriptors that the program opened.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable

from pto_core._hierarchy import SharedMapping
from pto_core.hierarchy.processes.parking import fork_lock

_parents: set[int] = set()
# A mapping closes its descriptor itself. The weak references have no callback, because the
# exception of a signal handler inside a callback would be lost.
_mappings: list[weakref.ref[SharedMapping]] = []


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
        _mappings = [*known, weakref.ref(mapping)]
    return mapping


def close_in_child(others: Iterable[int] = (), kept: Iterable[int] = ()) -> None:
    """Close the registered descriptors and ``others``, except ``kept``; forked children call it."""
    mappings = [mapping for one in _mappings if (mapping := one()) is not None]
    named = {*_parents, *(one.descriptor for one in mappings), *others}
    for descriptor in named.difference(kept):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _parents.clear()
    _mappings.clear()
