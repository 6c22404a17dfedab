"""Descriptors that only a parent needs: each child closes them, whoever's child it is.

A sibling that kept the end of a pipe open would hide that its owner is gone. There is one list for
the process, as there is one table of descriptors. The user's own stay open in children.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable

from pto_core._hierarchy import SharedMapping
from pto_core.hierarchy.processes.parking import fork_lock

_parents: set[int] = set()
# Mappings close theirs themselves. Without a callback: one in Python would run where a mapping
# goes, and what a signal's handler raises there is dropped.
_mappings: list[weakref.ref[SharedMapping]] = []


def parent_only(descriptor: int) -> int:
    """Have every child that is forked from now on close ``descriptor``; gives it back."""
    with fork_lock():
        _parents.add(descriptor)
    return descriptor


def close_parent_only(descriptor: int) -> None:
    """Close it, here; while another thread may fork, as soon as that is over."""

    def close() -> None:
        _parents.discard(descriptor)
        os.close(descriptor)

    fork_lock().call(close)  # a child must not close what gets its number in between


def parent_only_mapping(mapping: SharedMapping) -> SharedMapping:
    """Do so for the descriptor of a mapping, which closes it itself; gives the mapping back."""
    global _mappings
    with fork_lock():
        known = [one for one in _mappings if one() is not None]
        _mappings = [*known, weakref.ref(mapping)]
    return mapping


def close_in_child(others: Iterable[int] = (), kept: Iterable[int] = ()) -> None:
    """Close them and ``others``, but for those ``kept``: called in a forked child, for its sake."""
    mappings = [mapping for one in _mappings if (mapping := one()) is not None]
    named = {*_parents, *(one.descriptor for one in mappings), *others}
    for descriptor in named.difference(kept):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _parents.clear()
    _mappings.clear()
