"""The mappings that a spawned child needs from its ancestor Workers.

A forked process inherits the mappings at the same addresses. A spawned process attaches them
through their descriptors. Therefore the descriptors stay open in every process between the Worker
that created the mappings and the spawned process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pto_core.hierarchy.processes.descriptors import parent_only
from pto_core.hierarchy.processes.plan import ChildPlan

if TYPE_CHECKING:
    from pto_core._hierarchy import SharedMapping

Place = tuple[int, int, int]
"""The descriptor, the size and the address of a mapping."""

_places: list[Place] = []
os.register_at_fork(after_in_child=_places.clear)


def places_for(plan: ChildPlan) -> list[Place]:
    """Return the mappings of this Worker and its ancestors that a spawned child attaches."""
    return [*_places, *((one.descriptor, one.nbytes, one.address) for one in plan.mappings)]


def attached_by_spawned(mappings: Iterable[SharedMapping]) -> list[tuple[int, int]]:
    """Return the address and size of each mapping that spawned children attach."""
    above = [(address, nbytes) for _, nbytes, address in _places]
    return [*above, *((one.address, one.nbytes) for one in mappings)]


def passed_on(plan: ChildPlan) -> list[Place]:
    """Return the mappings whose descriptors a forked child must keep open."""
    return places_for(plan) if plan.passes_on else []


def keep(places: Iterable[Place]) -> None:
    """Keep the descriptors of mappings open for spawned children; forked children close them."""
    for descriptor, nbytes, address in places:
        _places.append((parent_only(descriptor), nbytes, address))
