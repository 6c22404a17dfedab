"""Access to mapped memory by address, and the division of ranges into pieces."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pto_core.errors import ProtocolError

PIECE_BYTES = 1 << 20
"""Ranges are divided at multiples of this number; no transfer has more bytes."""
PIECES_PER_STEP = 16
"""A gateway copies, compares or frees at most this many pieces before it sends heartbeats again."""


class Range(NamedTuple):
    """The addresses from ``start`` to ``end``, without ``end`` itself."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    def overlaps(self, other: Range) -> bool:
        """Return whether the ranges have a byte in common."""
        return self.start < other.end and other.start < self.end


def pieces_of(whole: Range) -> Iterator[Range]:
    """Yield the parts of a range that lie between multiples of :data:`PIECE_BYTES`."""
    start = whole.start
    while start < whole.end:
        end = min(whole.end, (start // PIECE_BYTES + 1) * PIECE_BYTES)
        yield Range(start, end)
        start = end


class AddressSpace:
    """The mapped ranges that tasks may use, as writable memory.

    ``ranges``: address and memory of each range; they do not overlap. Any thread may call.
    """

    def __init__(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        known = sorted(ranges, key=lambda one: one[0])
        self._starts = [start for start, _ in known]
        self._memory = [memory for _, memory in known]

    @classmethod
    def mapped(cls, ranges: Sequence[tuple[int, int]]) -> AddressSpace:
        """Return the space of some mappings of this process, each with address and size in bytes.

        The mappings must outlive the object.
        """
        return cls(
            (address, memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B"))
            for address, nbytes in ranges
        )

    def memory(self, place: Range) -> memoryview:
        """Return the memory of a range; raise ProtocolError if a byte of it is not mapped."""
        index = bisect_right(self._starts, place.start) - 1
        if index >= 0 and place.start <= place.end:
            offset = place.start - self._starts[index]
            if offset + place.nbytes <= len(self._memory[index]):
                return self._memory[index][offset : offset + place.nbytes]
        raise ProtocolError(
            f"{place.nbytes} bytes at {place.start:#x} are not inside the memory that a Worker and "
            "its children share"
        )
