"""The budget that limits the shared memory of a Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import ref

from pto_core.errors import CapacityError
from pto_core.hierarchy.memory.available import Availability, available

LIMIT_SETTING = "shared_memory_limit"


class Backing(Protocol):
    """A mapping in which memory is allocated."""

    @property
    def resident_bytes(self) -> int:
        """The number of bytes of the mapping that occupy physical memory."""


class Budget:
    """Counts allocated bytes, and refuses an allocation that would exceed the limit.

    ``limit``: the maximum number of allocated bytes. If it is None, the limit is the free memory of
    the machine and of the control groups. From this, the allocated pages that were not written yet
    are subtracted, because they will occupy memory later.
    """

    def __init__(
        self, limit: int | None = None, measure: Callable[[], Availability] = available
    ) -> None:
        self.limit = limit
        self.allocated = 0
        self._measure = measure
        # the existing mappings in which memory is allocated
        self._backings: list[ref[Backing]] = []

    def add_backing(self, backing: Backing) -> None:
        """Count the resident pages of a mapping that contains allocations, while it exists."""
        known = [one for one in self._backings if one() is not None]
        self._backings = [*known, ref(backing)]

    def take(self, nbytes: int, what: str) -> None:
        """Count ``nbytes`` as allocated; ``what``: the purpose, for the CapacityError."""
        left, reason = self._left()
        if nbytes > left:
            raise CapacityError(
                f"{what} needs {nbytes} bytes of shared memory, {max(left, 0)} are left: {reason}; "
                f"delete arrays that are no longer needed, or raise {LIMIT_SETTING}",
                name=LIMIT_SETTING,
                value=nbytes,
                limit=max(left, 0),
            )
        self.allocated += nbytes

    def give_back(self, nbytes: int) -> None:
        """Count ``nbytes`` as released."""
        self.allocated -= nbytes

    def _left(self) -> tuple[int, str]:
        if self.limit is not None:
            reason = f"{self.allocated} of {LIMIT_SETTING} = {self.limit} bytes are allocated"
            return self.limit - self.allocated, reason
        free = self._measure()
        promised = max(self.allocated - _resident(self._backings), 0)
        reason = f"{free.limited_by} leaves {free.nbytes} bytes"
        if promised:
            reason += f", of which {promised} belong to arrays that were not written yet"
        return free.nbytes - promised, reason


def _resident(backings: Iterable[ref[Backing]]) -> int:
    return sum(known.resident_bytes for one in backings if (known := one()) is not None)
