"""The memory of a remote host at the addresses of the parent's host, as used by its gateway.

The gateway writes the content that arrives before a frame, and collects the results after it.
Results stay here until the frame has succeeded; home memory is not changed before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pto_transport_zmq.remote.accesses import Access
from pto_transport_zmq.remote.address_space import (
    PIECE_BYTES,
    PIECES_PER_STEP,
    AddressSpace,
    Range,
    pieces_of,
)
from pto_transport_zmq.remote.changes import changes, whole
from pto_transport_zmq.remote.home_memory import Push, Result, digest_of


@dataclass(frozen=True)
class _Written:
    """A piece that a frame may write. ``before``: its content before the frame, if there is any."""

    place: Range
    before: bytes | None


@dataclass
class _Frame:
    """A frame in flight: what it may write, and the pieces of it that were copied."""

    written: Sequence[Access]
    pieces: deque[_Written] = field(default_factory=deque)


class ShadowMemory:
    """Holds the content of frames in flight. One thread.

    ``release``: frees the memory of a range of whole pages, which reads as zeros afterwards.
    ``pieces_per_step``: the most pieces that one call of :meth:`begin` copies.
    """

    def __init__(
        self,
        space: AddressSpace,
        release: Callable[[Range], None],
        pieces_per_step: int = PIECES_PER_STEP,
    ) -> None:
        self.pieces_per_step = pieces_per_step
        self._space = space
        self._release = release
        self._frames: dict[int, _Frame] = {}
        # for the newest frame, until all copies are made
        self._copies: Iterator[_Written] | None = None

    @property
    def is_copying(self) -> bool:
        """Whether :meth:`begin` has to be called again to prepare the newest frame."""
        return self._copies is not None

    def write(self, push: Push) -> None:
        """Write content that arrived; raise ProtocolError if its range is not mapped."""
        self._space.memory(push.place)[:] = push.content

    def evict(self, block: int) -> None:
        """Free the memory of a block that no frame in flight uses."""
        self._release(Range(block * PIECE_BYTES, (block + 1) * PIECE_BYTES))

    def begin(self, frame: int, accesses: Sequence[Access]) -> bool:
        """Copy the pieces that a frame may write; return True when all are copied.

        Write the content of the frame before the first call. After False, repeat the call with the
        same arguments: at once while :attr:`is_copying`; otherwise when an earlier frame in flight,
        which may write the same bytes, has ended. Raises ProtocolError for memory that is not
        mapped.
        """
        if self._copies is None:
            for access in accesses:
                self._space.memory(access.place)
            written = [access for access in accesses if access.is_written]
            if any(self._is_written_in_flight(access.place) for access in written):
                return False
            self._frames[frame] = _Frame(written)
            self._copies = self._copied(written)
        copied = list(islice(self._copies, self.pieces_per_step))
        self._frames[frame].pieces += copied
        if len(copied) == self.pieces_per_step:
            return False
        self._copies = None
        return True

    def results(self, frame: int) -> Iterator[Result]:
        """Yield the result of each piece that a frame may have written. The frame has succeeded.

        The copy of a piece is freed with its result.
        """
        pieces = self._frames[frame].pieces
        while pieces:
            yield self._result(pieces.popleft())

    def end(self, frame: int) -> None:
        """End a frame that has failed, was skipped, or whose results were sent."""
        del self._frames[frame]

    def _copied(self, written: Sequence[Access]) -> Iterator[_Written]:
        for access in written:
            for piece in pieces_of(access.place):
                yield _Written(
                    piece, None if access.is_new else self._space.memory(piece).tobytes()
                )

    def _result(self, written: _Written) -> Result:
        content = self._space.memory(written.place)
        changed = whole(content) if written.before is None else changes(written.before, content)
        return Result(written.place, changed, digest_of(content))

    def _is_written_in_flight(self, place: Range) -> bool:
        return any(
            one.place.overlaps(place) for frame in self._frames.values() for one in frame.written
        )
