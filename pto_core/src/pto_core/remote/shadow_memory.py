"""The memory of a remote host at the addresses of the parent's host, as its gateway uses it.

The gateway writes the content that arrives before a frame, and collects the results after it.
Results stay here until the frame has succeeded: home memory does not change before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pto_core.remote.accesses import Access
from pto_core.remote.address_space import PIECE_BYTES, AddressSpace, Range, pieces_of
from pto_core.remote.changes import changes, whole
from pto_core.remote.home_memory import Push, Result, digest_of


@dataclass(frozen=True)
class _Written:
    """A piece that a frame may write; ``before`` is its content before the frame, if it had one."""

    place: Range
    before: bytes | None


class ShadowMemory:
    """Holds the content of frames in flight. One thread.

    ``release``: frees the memory of a range of whole pages, which reads as zeros afterwards.
    """

    def __init__(self, space: AddressSpace, release: Callable[[Range], None]) -> None:
        self._space = space
        self._release = release
        self._frames: dict[int, list[_Written]] = {}

    def write(self, push: Push) -> None:
        """Write content that arrived; raise ProtocolError if its range is not mapped."""
        self._space.memory(push.place)[:] = push.content

    def evict(self, block: int) -> None:
        """Free the memory of a block that no frame in flight uses."""
        self._release(Range(block * PIECE_BYTES, (block + 1) * PIECE_BYTES))

    def begin(self, frame: int, accesses: Sequence[Access]) -> bool:
        """Prepare a frame; its content has been written.

        Returns False if an earlier frame in flight may write the same bytes: the frame waits until
        that one has ended. Raises ProtocolError for memory that is not mapped.
        """
        for access in accesses:
            self._space.memory(access.place)
        written = [access for access in accesses if access.is_written]
        if any(self._is_written_in_flight(access.place) for access in written):
            return False
        self._frames[frame] = [
            _Written(piece, None if access.is_new else self._space.memory(piece).tobytes())
            for access in written
            for piece in pieces_of(access.place)
        ]
        return True

    def results(self, frame: int) -> Iterator[Result]:
        """Yield the result of each piece that a frame may have written and that succeeded."""
        for written in self._frames[frame]:
            yield self._result(written)

    def end(self, frame: int) -> None:
        """End a frame that has failed, was skipped, or whose results were sent."""
        del self._frames[frame]

    def _result(self, written: _Written) -> Result:
        content = self._space.memory(written.place)
        changed = whole(content) if written.before is None else changes(written.before, content)
        return Result(written.place, changed, digest_of(content))

    def _is_written_in_flight(self, place: Range) -> bool:
        return any(one.place.overlaps(place) for frame in self._frames.values() for one in frame)
