"""A set of bytes as sorted ranges that do not touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""The first byte, and the byte after the last one."""


class ByteSet:
    """A set of bytes. The cost of each method follows the number of ranges that it touches."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in ranges:
            self.add(begin, end)

    def __len__(self) -> int:
        """Return the number of bytes."""
        return sum(self._ends) - sum(self._begins)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._begins, self._ends, strict=True)

    @property
    def hull(self) -> Range:
        """The first byte and the byte after the last one; the set must not be empty."""
        return self._begins[0], self._ends[-1]

    def add(self, begin: int, end: int) -> None:
        """Add the bytes from ``begin`` to ``end`` - 1."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def within(self, begin: int, end: int) -> list[Range]:
        """Return the parts of a range that the set contains."""
        first = bisect_right(self._ends, begin)
        last = bisect_left(self._begins, end)
        return [
            (max(begin, self._begins[at]), min(end, self._ends[at])) for at in range(first, last)
        ]

    def missing(self, begin: int, end: int) -> list[Range]:
        """Return the parts of a range that the set does not contain."""
        found = []
        for low, high in self.within(begin, end):
            if begin < low:
                found.append((begin, low))
            begin = high
        if begin < end:
            found.append((begin, end))
        return found
