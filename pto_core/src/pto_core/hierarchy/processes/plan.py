"""What a child is started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pto_core._hierarchy import SharedMapping
    from pto_core.hierarchy.processes.child_start import ChildStart


@dataclass(frozen=True)
class ChildPlan:
    """``body`` runs in the child, calls ``start.ready(value)`` once, and returns when it is done.

    ``path`` names the child in every message (``"L4/host0"``). A forked child gets ``body`` as it
    is; one that is started anew gets it pickled, with ``mappings`` at the addresses that they have
    here. ``passes_on``: below it others are started anew, which need the mappings, too.
    """

    path: str
    body: Callable[[ChildStart], None]
    mappings: tuple[SharedMapping, ...] = field(default=(), repr=False)
    passes_on: bool = False
