"""How much memory a Worker hands out, and where that ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import ref

from pto_core.errors import CapacityError
from pto_core.hierarchy.memory.available import Availability, available

LIMIT_SETTING = "shared_memory_limit"


class Backing(Protocol):
    """A mapping that what is handed out lies in."""

    @property
    def resident_bytes(self) -> int:
        """Bytes that take memory."""


class Budget:
    """Counts what is handed out. Refuses what goes beyond the limit, before anything is changed.

    With a ``limit`` that is what is handed out at one time. Without, it is what memory and control
    group leave free at that moment, less what was handed out and has not been written yet: such
    pages take memory later, without another call that could be refused.
    """

    def __init__(
        self, limit: int | None = None, measure: Callable[[], Availability] = available
    ) -> None:
        self.limit = limit
        self.handed_out = 0
        self._measure = measure
        self._backings: list[ref[Backing]] = []  # one that is gone takes no memory

    def add_backing(self, backing: Backing) -> None:
        """Count the pages of ``backing``, as long as it lives, as what is handed out lies in it."""
        known = [one for one in self._backings if one() is not None]
        self._backings = [*known, ref(backing)]

    def take(self, nbytes: int, what: str) -> None:
        """Hand out ``nbytes``; ``what`` names them in the CapacityError."""
        left, reason = self._left()
        if nbytes > left:
            raise CapacityError(
                f"{what} needs {nbytes} bytes of shared memory, {max(left, 0)} are left: {reason}; "
                f"let go of arrays that are not needed any more, or set {LIMIT_SETTING}",
                name=LIMIT_SETTING,
                value=nbytes,
                limit=max(left, 0),
            )
        self.handed_out += nbytes

    def give_back(self, nbytes: int) -> None:
        """Take back what was handed out."""
        self.handed_out -= nbytes

    def _left(self) -> tuple[int, str]:
        if self.limit is not None:
            reason = f"{self.handed_out} of {LIMIT_SETTING} = {self.limit} bytes are handed out"
            return self.limit - self.handed_out, reason
        free = self._measure()
        promised = max(self.handed_out - _resident(self._backings), 0)
        reason = f"{free.limited_by} leaves {free.nbytes} bytes"
        if promised:
            reason += f", of which {promised} are promised to arrays that are not written yet"
        return free.nbytes - promised, reason


def _resident(backings: Iterable[ref[Backing]]) -> int:
    return sum(known.resident_bytes for one in backings if (known := one()) is not None)
