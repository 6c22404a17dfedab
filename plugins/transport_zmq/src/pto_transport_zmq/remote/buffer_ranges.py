"""The live remote buffers of one session, on either side."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from pto_core.errors import BufferLostError
from pto_transport_zmq.remote.accesses import buffer_tensors
from pto_transport_zmq.remote.address_space import Range


class BufferRanges:
    """The ranges of the buffers that a session has allocated. They do not overlap."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def add(self, place: Range) -> None:
        """Add a buffer."""
        insort(self._ranges, place)

    def remove(self, address: int) -> Range | None:
        """Remove the buffer at an address, and return its range; None if there is none."""
        found = self._at(address)
        if found is None or found.start != address:
            return None
        self._ranges.remove(found)
        return found

    def overlaps(self, place: Range) -> bool:
        """Return whether a buffer has a byte of this range."""
        return any(one.overlaps(place) for one in self._ranges)

    def check(self, place: Range) -> None:
        """Raise BufferLostError unless one buffer contains the range."""
        found = self._at(place.start)
        if found is None or place.end > found.end:
            raise BufferLostError(
                f"{place.nbytes} bytes at {place.start:#x} are in no remote buffer that this "
                "session of the child has; the buffer was freed, or lost with an earlier session",
                address=place.start,
            )

    def check_tensors(self, blob: bytes) -> None:
        """Raise BufferLostError if a tensor of a task is in a remote buffer that is not live."""
        for _, place in buffer_tensors(blob):
            self.check(place)

    def _at(self, address: int) -> Range | None:
        index = bisect_right(self._ranges, address, key=lambda one: one.start) - 1
        return self._ranges[index] if index >= 0 else None
