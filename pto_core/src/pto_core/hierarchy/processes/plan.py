"""The plan for the start of a child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pto_core._hierarchy import SharedMapping
    from pto_core.hierarchy.processes.child_start import ChildStart

StartMethod = Literal["fork", "spawn"]


@dataclass(frozen=True)
class ChildPlan:
    """The name and body of a child, and the memory that it shares.

    ``path`` names the child in messages (``"L4/host0"``). ``body`` runs in the child and calls
    ``start.ready(value)`` once. When it returns, the child exits. A spawned child receives ``body``
    pickled, and attaches ``mappings`` at the addresses that they have in this process.
    ``passes_on``: the child will spawn children that need the mappings too. ``descriptors``: other
    descriptors that a spawned child inherits under the same numbers, as a forked child does.
    """

    path: str
    body: Callable[[ChildStart], None]
    mappings: tuple[SharedMapping, ...] = field(default=(), repr=False)
    passes_on: bool = False
    start_method: StartMethod = "fork"
    descriptors: tuple[int, ...] = ()
