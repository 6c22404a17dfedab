"""The context: the data that every child receives when it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pto_core.hierarchy.handles import materialised

if TYPE_CHECKING:
    from pto_core.hierarchy.endpoints import ChildConnection
    from pto_core.hierarchy.handles import Delivery


@dataclass(frozen=True)
class ChildContext:
    """The number of a child in its Worker, its shared memory, its connection and its callables.

    ``progress_table``: the address of the progress table. ``inherited``: the callables that a
    forked child inherits, by digest. ``deliveries``: the ways in which a spawned child obtains the
    callables.
    """

    index: int
    progress_table: int
    endpoint: ChildConnection
    inherited: Mapping[bytes, Any] = field(default_factory=dict)
    deliveries: Mapping[bytes, Sequence[Delivery]] = field(default_factory=dict)

    def callables(self) -> dict[bytes, Any]:
        """Return all callables by digest. If one cannot be loaded, raise its error."""
        made = {digest: materialised(ways) for digest, ways in self.deliveries.items()}
        return {**self.inherited, **made}
