"""The four heap rings. Slabs are reserved at the head and freed in order at the tail.

Offsets are virtual and only increase. A ring of n bytes is used in laps: lap k covers the offsets
[k * n, (k + 1) * n), and each slab lies within one lap. The offset of a slab depends on the size of
the ring and on earlier reservations, but not on when slabs were freed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pto_core.errors import CapacityError
from pto_devkit.engine.configuration import SLAB_BYTES, RingConfiguration


def rounded(nbytes: int) -> int:
    """Return the number of bytes that an output uses in its slab."""
    return -(-nbytes // SLAB_BYTES) * SLAB_BYTES


@dataclass(slots=True, eq=False)
class Slab:
    """The memory that one submit has reserved: [begin, end) in virtual offsets."""

    ring: int
    task: int
    begin: int
    end: int
    address: int
    is_released: bool = False
    """Whether the slab's task was consumed. The slab is freed once all older slabs are free."""

    def holds(self, begin: int, end: int) -> bool:
        """Return whether the slab contains all bytes of the range."""
        return self.address <= begin and end <= self.address + self.end - self.begin


class HeapRing:
    """A heap ring. ``slabs`` are the slabs in use, oldest first."""

    def __init__(self, number: int, configuration: RingConfiguration) -> None:
        self.number = number
        self.configuration = configuration
        self.slabs: deque[Slab] = deque()
        self.head = 0

    @property
    def size(self) -> int:
        """The size of the ring in bytes."""
        return self.configuration.size

    @property
    def used(self) -> int:
        """The number of bytes from the oldest slab to the head."""
        return self.head - self.slabs[0].begin if self.slabs else 0

    @property
    def held(self) -> int:
        """The total size of the slabs in use, without the unused ends of laps."""
        return sum(slab.end - slab.begin for slab in self.slabs)

    def restart(self) -> None:
        """Start again at offset 0. No slab may be in use."""
        self.head = 0

    def begin_of(self, nbytes: int) -> int | None:
        """Return the offset at which a new slab would begin; None if free space is missing."""
        if nbytes > self.size:
            raise CapacityError(
                f"a submit needs {nbytes} bytes of heap ring {self.number}, which has "
                f"{self.size}; set heap_ring_size to at least {nbytes}",
                name="heap_ring_size",
                value=nbytes,
                limit=self.size,
            )
        rest = -self.head % self.size
        begin = self.head if nbytes <= (rest or self.size) else self.head + rest
        oldest = self.slabs[0].begin if self.slabs else begin
        return begin if begin + nbytes - oldest <= self.size else None

    def reserve(self, task: int, begin: int, nbytes: int) -> Slab:
        """Create a slab at the offset that :meth:`begin_of` returned."""
        address = self.configuration.address + begin % self.size
        slab = Slab(self.number, task, begin, begin + nbytes, address)
        self.slabs.append(slab)
        self.head = slab.end
        return slab

    def release(self, slab: Slab) -> bool:
        """Free the slab once all older slabs are free. Return whether this call freed memory."""
        slab.is_released = True
        has_moved = False
        while self.slabs and self.slabs[0].is_released:
            self.slabs.popleft()
            has_moved = True
        return has_moved

    def contains(self, begin: int, end: int) -> bool:
        """Return whether any byte of the range belongs to the ring."""
        first = self.configuration.address
        return begin < first + self.size and first < end

    def owner(self, begin: int, end: int) -> Slab | None:
        """Return the slab of a live task that contains all bytes of the range."""
        for slab in self.slabs:
            if not slab.is_released and slab.holds(begin, end):
                return slab
        return None
