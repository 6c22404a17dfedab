"""Descriptors that only a parent needs; every forked child closes them.

A child that kept the end of a sibling's pipe would hide the exit of the pipe's owner. The list is
global, as the table of descriptors is. Descriptors of the program stay open in children.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable

from pto_core._hierarchy import SharedMapping
from pto_core.hierarchy.processes.parking import fork_lock

_parents: set[int] = set()
# Mappings close their descriptors. The references have no callback: an exception of a signal
# handler inside it would be lost.
_mappings: list[weakref.ref[SharedMapping]] = []


def parent_only(descriptor: int) -> int:
    """Close ``descriptor`` in every child that is forked from now on; return it."""
    with fork_lock():
        _parents.add(descriptor)
    return descriptor


def close_parent_only(descriptor: int) -> None:
    """Close a descriptor in this process; while another thread forks, after the fork."""

    def close() -> None:
        _parents.discard(descriptor)
        os.close(descriptor)

    fork_lock().call(close)  # a child must not close a reused number


def parent_only_mapping(mapping: SharedMapping) -> SharedMapping:
    """Close the descriptor of a mapping in every forked child; return the mapping."""
    global _mappings
    with fork_lock():
        known = [one for one in _mappings if one() is not None]
        _mappings = [*known, weakref.ref(mapping)]
    return mapping


def close_in_child(others: Iterable[int] = (), kept: Iterable[int] = ()) -> None:
    """Close these descriptors and ``others``, except ``kept``; called in a forked child."""
    mappings = [mapping for one in _mappings if (mapping := one()) is not None]
    named = {*_parents, *(one.descriptor for one in mappings), *others}
    for descriptor in named.difference(kept):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _parents.clear()
    _mappings.clear()
