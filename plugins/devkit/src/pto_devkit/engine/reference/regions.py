"""Writers and readers of memory regions: the list of entries, and the rules of overlap.

A region is a range of bytes, a box of a buffer, or a key. A box that covers its whole buffer is a
range. Two boxes of one buffer overlap if they share an element. Two boxes have one buffer if their
first byte and their dimensions are equal, without dimensions of size 1 and with the fastest one
counted in bytes. Any other two regions overlap if the byte ranges that enclose them (hulls)
overlap; this is exact for ranges and contiguous boxes, and conservative otherwise. A key overlaps
only keys of the same address. Regions of different memories never overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from pto_core.errors import UsageError
from pto_devkit.engine.interface import NONE, Box, Tensor

MAX_DIMENSIONS = 5


@dataclass(frozen=True, slots=True)
class Region:
    """``begin`` to ``end`` is the byte hull, empty for a key. ``sides``: the box by dimension."""

    begin: int
    end: int
    buffer: tuple[int, ...] = ()
    """The first byte and the dimensions of the buffer; empty for ranges and keys."""
    sides: tuple[tuple[int, int], ...] = ()
    is_contiguous: bool = True
    child: int = NONE
    """The child that owns the memory, or NONE."""

    @property
    def is_key(self) -> bool:
        """Return whether the region covers no bytes."""
        return self.begin == self.end

    def overlaps(self, other: Region) -> bool:
        """Return whether two regions overlap by the rules above."""
        if self.child != other.child:
            return False
        if self.is_key or other.is_key:
            return self.is_key and other.is_key and self.begin == other.begin
        if self.buffer and self.buffer == other.buffer:
            pairs = zip(self.sides, other.sides, strict=True)
            return all(a[0] < b[1] and b[0] < a[1] for a, b in pairs)
        return self.begin < other.end and other.begin < self.end

    def is_certain(self, other: Region) -> bool:
        """Return whether two overlapping regions certainly share bytes."""
        if self.buffer == other.buffer or (self.is_contiguous and other.is_contiguous):
            return True
        return (self.is_contiguous and self._spans(other)) or (
            other.is_contiguous and other._spans(self)
        )

    def covers(self, other: Region) -> bool:
        """Return whether this region contains ``other``, which overlaps it."""
        if self.buffer and self.buffer == other.buffer:
            pairs = zip(self.sides, other.sides, strict=True)
            return all(a[0] <= b[0] and b[1] <= a[1] for a, b in pairs)
        return self.is_contiguous and self._spans(other)

    def _spans(self, other: Region) -> bool:
        return self.begin <= other.begin and other.end <= self.end


def region_of(tensor: Tensor, address: int) -> Region:
    """Return the region of a tensor at ``address``. Raises :class:`UsageError`."""
    if tensor.box is None or tensor.nbytes == 0:
        return Region(address, address + tensor.nbytes, child=tensor.child)
    return replace(_region_of_box(tensor.box, tensor), child=tensor.child)


def fits(box: Box) -> bool:
    """Return whether the box lies inside a valid buffer."""
    if not len(box.raw) == len(box.low) == len(box.extent) or box.element_bytes < 1:
        return False
    shape = tuple(zip(box.raw, box.low, box.extent, strict=True))
    lies_in = all(low >= 0 and extent >= 1 and low + extent <= raw for raw, low, extent in shape)
    end = box.base + box.element_bytes * prod(box.raw)
    return lies_in and 1 <= len(shape) <= MAX_DIMENSIONS and box.base >= 0 and end < 1 << 64


def _region_of_box(box: Box, tensor: Tensor) -> Region:
    shape = tuple(zip(box.raw, box.low, box.extent, strict=True))
    stride, first, last = box.element_bytes, box.base, box.element_bytes
    for raw, low, extent in shape:
        first += low * stride
        last += (extent - 1) * stride
        stride *= raw
    nbytes = box.element_bytes * prod(box.extent)
    if (tensor.address, tensor.nbytes) != (first, nbytes):
        raise UsageError(
            f"a tensor of {tensor.nbytes} bytes at {tensor.address:#x} has a box of {nbytes} bytes "
            f"at {first:#x}",
            name="box",
            value=box,
        )
    if box.extent == box.raw:
        return Region(first, first + nbytes)
    return Region(first, first + last, *_normalised(box, shape), last == nbytes)


def _normalised(
    box: Box, shape: tuple[tuple[int, int, int], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    scale = box.element_bytes
    raws, sides = [], []
    for raw, low, extent in shape:
        if raw > 1:
            raws.append(raw * scale)
            sides.append((low * scale, (low + extent) * scale))
            scale = 1
    return (box.base, *raws), tuple(sides)


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of the index: a region that a task writes or reads."""

    region: Region
    task: int
    is_writer: bool


class RegionIndex:
    """The entries, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def overlapping(self, region: Region, *, writers: bool) -> Iterator[Entry]:
        """Return the writers, or the readers, whose regions overlap."""
        for entry in self.entries:
            if entry.is_writer == writers and entry.region.overlaps(region):
                yield entry

    def add(self, region: Region, task: int, *, is_writer: bool) -> Entry:
        """Add the region; a writer removes the older entries that it covers."""
        if is_writer:
            self.entries = [
                entry
                for entry in self.entries
                if not (entry.region.overlaps(region) and region.covers(entry.region))
            ]
        entry = Entry(region, task, is_writer)
        self.entries.append(entry)
        return entry

    def forget(self, entries: list[Entry]) -> None:
        """Remove these entries. Entries that were removed before are ignored."""
        self.entries = [entry for entry in self.entries if entry not in entries]

    def forget_memory(self, begin: int, end: int) -> None:
        """Remove the entries of memory that no task owns. Keys are not memory."""
        self.entries = [
            entry
            for entry in self.entries
            if entry.region.is_key
            or entry.region.child != NONE
            or not (begin <= entry.region.begin and entry.region.end <= end)
        ]
