"""The free blocks of a range of bytes."""

from __future__ import annotations

from bisect import bisect_left, insort


class FreeList:
    """The free blocks of a range.

    ``_by_size`` and ``_by_offset`` contain the same blocks. No two free blocks are adjacent.
    """

    def __init__(self, nbytes: int) -> None:
        self._by_size: list[tuple[int, int]] = []
        self._by_offset: list[tuple[int, int]] = []
        self._add(0, nbytes)

    def take(self, nbytes: int) -> int | None:
        """Allocate from the smallest free block that is large enough.

        Returns the offset, or None if no block is large enough.
        """
        place = bisect_left(self._by_size, (nbytes, 0))
        if place == len(self._by_size):
            return None
        size, offset = self._by_size[place]
        self._cut(offset, size, offset, nbytes)
        return offset

    def take_from(self, first: int, nbytes: int) -> int | None:
        """Allocate at the lowest free offset from ``first``; if there is none, from 0.

        Returns the offset, or None if no block is large enough.
        """
        for least in (first, 0):
            for offset, size in self._by_offset:
                start = max(offset, least)
                if start + nbytes <= offset + size:
                    self._cut(offset, size, start, nbytes)
                    return start
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free an allocated block."""
        place = bisect_left(self._by_offset, (offset, 0))
        if place < len(self._by_offset) and self._by_offset[place][0] == offset + nbytes:
            after = self._by_offset[place]
            self._remove(*after)
            nbytes += after[1]
        if place > 0 and sum(self._by_offset[place - 1]) == offset:
            before = self._by_offset[place - 1]
            self._remove(*before)
            offset, nbytes = before[0], before[1] + nbytes
        self._add(offset, nbytes)

    @property
    def largest(self) -> int:
        """The size of the largest free block."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The offset and size of each free block, in ascending order."""
        return list(self._by_offset)

    def _cut(self, offset: int, size: int, start: int, nbytes: int) -> None:
        """Remove a part of a free block."""
        self._remove(offset, size)
        end = start + nbytes
        for rest, count in ((offset, start - offset), (end, offset + size - end)):
            if count > 0:
                self._add(rest, count)

    def _add(self, offset: int, nbytes: int) -> None:
        insort(self._by_size, (nbytes, offset))
        insort(self._by_offset, (offset, nbytes))

    def _remove(self, offset: int, nbytes: int) -> None:
        del self._by_size[bisect_left(self._by_size, (nbytes, offset))]
        del self._by_offset[bisect_left(self._by_offset, (offset, nbytes))]
