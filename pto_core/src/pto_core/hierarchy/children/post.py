"""What every child is given, whatever it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pto_core.hierarchy.handles import materialised

if TYPE_CHECKING:
    from pto_core.hierarchy.endpoints import ChildConnection
    from pto_core.hierarchy.handles import Delivery


@dataclass(frozen=True)
class Post:
    """The place of a child in its Worker: its number, the boards, its connection, its callables.

    ``table`` has the objects that a forked child inherits, by digest; ``deliveries`` has the ways
    in which a spawned child gets them.
    """

    index: int
    boards: int
    endpoint: ChildConnection
    table: Mapping[bytes, Any] = field(default_factory=dict)
    deliveries: Mapping[bytes, Sequence[Delivery]] = field(default_factory=dict)

    def callables(self) -> dict[bytes, Any]:
        """Give all callables by digest; raises whatever is in the way of one."""
        made = {digest: materialised(ways) for digest, ways in self.deliveries.items()}
        return {**self.table, **made}
