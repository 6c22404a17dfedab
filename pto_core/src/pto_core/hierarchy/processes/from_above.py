"""The mappings of the levels above, as a process needs them to start children anew.

Who is forked has them at their addresses, and so have those that it forks. A new interpreter
attaches them by their descriptors: so these stay open all the way down to it, and nowhere else.
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
"""Of a mapping: descriptor, bytes, address."""

_places: list[Place] = []
os.register_at_fork(after_in_child=_places.clear)


def places_for(plan: ChildPlan) -> list[Place]:
    """Give what a child has to attach that is started anew: of all levels above it."""
    return [*_places, *((one.descriptor, one.nbytes, one.address) for one in plan.mappings)]


def attached_by_children(
    start_method: str, mappings: Iterable[SharedMapping]
) -> list[tuple[int, int]] | None:
    """Return address and bytes of what spawned children attach; None where children are forked."""
    if start_method == "fork":
        return None
    above = [(address, nbytes) for _, nbytes, address in _places]
    return [*above, *((one.address, one.nbytes) for one in mappings)]


def passed_on(plan: ChildPlan) -> list[Place]:
    """Give those whose descriptors a child that is forked has to keep: mostly none."""
    return places_for(plan) if plan.passes_on else []


def keep(places: Iterable[Place]) -> None:
    """Have this process pass them on; its children close the descriptors unless they do, too."""
    for descriptor, nbytes, address in places:
        _places.append((parent_only(descriptor), nbytes, address))
