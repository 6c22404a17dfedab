"""The memory of the parent's host as the relay of one remote child uses it.

Home memory is authoritative; the shadow on the other host is a copy of parts of it. Before a frame
leaves, :meth:`HomeMemory.admit` returns the pieces that the shadow lacks, and the relay sends the
:meth:`HomeMemory.content` of each. After the frame, :meth:`HomeMemory.write` writes its results.

The shadow begins with zeros, and a block that it evicts becomes zero. So memory that is still zero,
such as that of a new allocation, is not sent.

Invariants: ``_known[piece]`` is the digest of the piece in the shadow after all frames that were
sent have ended, unless a frame in flight writes the piece. Digests only save traffic: without the
table, everything is sent. No byte outside the ranges of a frame's arguments is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import xxhash

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.accesses import Access
from pto_transport_zmq.remote.address_space import PIECE_BYTES, AddressSpace, Range, pieces_of
from pto_transport_zmq.remote.changes import apply_changes
from pto_transport_zmq.remote.clock import now_ns
from pto_transport_zmq.remote.shared_digests import SMALLEST_BYTES, SharedDigests

HASHES_PER_STEP = 64
"""A relay hashes at most this many pieces before it sends heartbeats again."""
_PROBE_BYTES = 16


class Push(NamedTuple):
    """Content that the shadow needs before a frame starts."""

    place: Range
    content: bytes | memoryview


class Result(NamedTuple):
    """The changes of a piece by a task, and the digest of its content afterwards."""

    place: Range
    changes: bytes | memoryview
    digest: bytes


@dataclass(frozen=True)
class Admission:
    """The steps before a frame: blocks that the shadow frees, by number, then pieces to send."""

    evicted: Sequence[int]
    stale: Sequence[Range]


@dataclass
class _InFlight:
    """The accesses of a frame that was sent and has not ended."""

    written: list[Access]
    blocks: set[int] = field(default_factory=set)
    _pieces: set[Range] | None = None

    def pieces(self) -> set[Range]:
        """Return the pieces that the frame may write."""
        if self._pieces is None:
            self._pieces = {piece for access in self.written for piece in pieces_of(access.place)}
        return self._pieces


@dataclass
class _Admitting:
    """A frame whose pieces are being compared: those that are left, and the stale ones so far."""

    in_flight: _InFlight
    left: Iterator[Range]
    since_ns: int  # the time since which its inputs cannot change
    stale: list[Range] = field(default_factory=list)


@dataclass
class _Block:
    """The digests of pieces inside one block; the pieces do not overlap."""

    digests: dict[Range, bytes] = field(default_factory=dict)
    _pieces: list[Range] = field(default_factory=list)  # sorted

    def learn(self, piece: Range, digest: bytes) -> None:
        """Store the digest of a piece; forget the other pieces that it overlaps."""
        if piece not in self.digests:
            self._pieces.insert(self.forget(piece), piece)
        self.digests[piece] = digest

    def forget(self, place: Range) -> int:
        """Forget the pieces that overlap a place; return the index for a piece at this place."""
        first = bisect_left(self._pieces, place)
        if first and self._pieces[first - 1].end > place.start:
            first -= 1
        end = first
        while end < len(self._pieces) and self._pieces[end].start < place.end:
            del self.digests[self._pieces[end]]
            end += 1
        del self._pieces[first:end]
        return first


class HomeMemory:
    """Decides which bytes travel to the shadow, and writes those that come back. One thread.

    ``quota``: the bytes of shadow memory, at least 1 MiB. Above the quota, blocks of 1 MiB that no
    frame in flight uses are evicted, the least recently used first. The shadow exceeds the quota
    only for a single frame that needs more. ``hashes_per_step``: the most pieces that one call of
    :meth:`admit` hashes. ``digests``: those that other relays share, if there are any.
    """

    def __init__(
        self,
        space: AddressSpace,
        quota: int,
        hashes_per_step: int = HASHES_PER_STEP,
        digests: SharedDigests | None = None,
    ) -> None:
        self._space = space
        self._digests = digests
        self._hashes_per_step = hashes_per_step
        self._quota_blocks = quota // PIECE_BYTES
        self._known: dict[int, _Block] = {}
        self._frames: dict[int, _InFlight] = {}
        self._admitting: _Admitting | None = None
        # memory that frames in flight allocate, by frame
        self._allocated: dict[int, list[Range]] = {}
        # blocks with content in the shadow, least recently used first
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._uses: Counter[int] = Counter()  # the number of frames in flight that use a block

    @property
    def is_hashing(self) -> bool:
        """Whether :meth:`admit` has to be called again to compare more pieces of a frame."""
        return self._admitting is not None

    def admit(self, frame: int, accesses: Sequence[Access]) -> Admission | None:
        """Return the steps before a frame, which is in flight from now on.

        While :attr:`is_hashing`, it returns None: repeat the call with the same arguments; earlier
        frames may end in between. Otherwise None means that the frame must wait until an earlier
        one has ended: either the earlier one may write a piece that has to be sent, or the frames
        in flight would need more memory than the quota. Raises ProtocolError for memory that is not
        shared.
        """
        admitting = self._admitting or self._first_step(accesses)
        self._admitting = None
        if admitting is None:
            return None
        pieces = list(islice(admitting.left, self._hashes_per_step))
        stale = [piece for piece in pieces if not self._is_known(piece, admitting.since_ns)]
        if any(map(self._is_written_in_flight, stale)):
            return None
        admitting.stale += stale
        if len(pieces) == self._hashes_per_step:
            self._admitting = admitting
            return None
        return self._admitted(frame, admitting)

    def content(self, piece: Range) -> Push:
        """Return a stale piece of the frame that was admitted last, with its content."""
        # Other hosts may write neighbouring bytes at any time, so the digest is that of the copy.
        content = self._space.memory(piece).tobytes()
        self._learn(piece, digest_of(content))
        return Push(piece, content)

    def write(self, frame: int, result: Result) -> None:
        """Write one result of a frame in flight, which has succeeded on the other host.

        Raises ProtocolError if the result is not one of the pieces that the frame may write, or if
        its changes are malformed.
        """
        place = result.place
        if frame not in self._frames or place not in self._frames[frame].pieces():
            raise ProtocolError(
                f"a result has {place.nbytes} bytes at {place.start:#x}, which frame {frame} may "
                "not write"
            )
        apply_changes(result.changes, self._space.memory(place))
        self._learn(place, result.digest)

    def finish(self, frame: int) -> None:
        """End a frame whose results have been written."""
        self._end(frame)

    def drop(self, frame: int) -> None:
        """End a frame that failed or was skipped; forget the digests of its outputs."""
        for piece in self._end(frame).pieces():
            self._forget(piece)

    def _first_step(self, accesses: Sequence[Access]) -> _Admitting | None:
        """Begin a frame: its pieces can be compared. Return None if it exceeds the quota now."""
        in_flight = _InFlight([access for access in accesses if access.is_written])
        for access in accesses:
            self._space.memory(access.place)
            in_flight.blocks.update(_blocks(access.place))
        added = sum(block not in self._uses for block in in_flight.blocks)
        if self._frames and added and len(self._uses) + added > self._quota_blocks:
            return None
        left = (one for access in accesses for one in self._wanted(access))
        if self._digests is None:
            return _Admitting(in_flight, left, now_ns())
        return _Admitting(in_flight, iter(self._digests.in_order(list(left))), now_ns())

    def _admitted(self, frame: int, admitting: _Admitting) -> Admission:
        in_flight = self._frames[frame] = admitting.in_flight
        allocated = [access.place for access in in_flight.written if access.is_new]
        if allocated:
            self._allocated[frame] = allocated
        self._use(in_flight.blocks)
        return Admission(self._evict(), list(dict.fromkeys(admitting.stale)))

    def _wanted(self, access: Access) -> Iterator[Range]:
        """Yield the pieces of an access that must equal home memory.

        Memory that a frame in flight allocates has its content in the shadow only.
        """
        if not access.needs_content:
            return
        for piece in pieces_of(access.place):
            left = [piece]
            for places in self._allocated.values():
                for place in places:
                    left = [part for one in left for part in _without(one, place)]
            yield from left

    def _is_written_in_flight(self, piece: Range) -> bool:
        return any(
            access.place.overlaps(piece)
            for known in self._frames.values()
            for access in known.written
        )

    def _known_digest(self, piece: Range) -> bytes | None:
        block = self._known.get(piece.start // PIECE_BYTES)
        return None if block is None else block.digests.get(piece)

    def _is_known(self, piece: Range, since_ns: int) -> bool:
        """Return whether the shadow has the content of a piece."""
        known = self._known_digest(piece)
        if known is None:
            return self._is_zero(piece)
        return known == self._digest(piece, since_ns)

    def _digest(self, piece: Range, since_ns: int) -> bytes:
        """Return the digest of a piece that this or another relay has read since ``since_ns``."""
        digests = self._digests if piece.nbytes >= SMALLEST_BYTES else None
        found = None if digests is None else digests.find(piece, since_ns)
        if found is None:
            begun_ns = now_ns()
            found = digest_of(self._space.memory(piece))
            if digests is not None:
                digests.store(piece, begun_ns, found)
        return found

    def _is_zero(self, piece: Range) -> bool:
        """Return whether a piece is zero here, and in the shadow because its block is unused."""
        content = self._space.memory(piece)
        if piece.start // PIECE_BYTES in self._blocks or any(content[:_PROBE_BYTES]):
            return False
        zeros = _zeros_digest(piece.nbytes)
        if digest_of(content) != zeros:
            return False
        self._learn(piece, zeros)
        return True

    def _learn(self, piece: Range, digest: bytes) -> None:
        self._known.setdefault(piece.start // PIECE_BYTES, _Block()).learn(piece, digest)

    def _forget(self, piece: Range) -> None:
        block = self._known.get(piece.start // PIECE_BYTES)
        if block is not None:
            block.forget(piece)

    def _end(self, frame: int) -> _InFlight:
        ended = self._frames.pop(frame)
        self._allocated.pop(frame, None)
        for block in ended.blocks:
            if self._uses[block] == 1:
                del self._uses[block]
            else:
                self._uses[block] -= 1
        return ended

    def _use(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._uses[block] += 1
            self._blocks[block] = None
            self._blocks.move_to_end(block)

    def _evict(self) -> list[int]:
        excess = len(self._blocks) - self._quota_blocks
        if excess <= 0:
            return []
        unused = (block for block in self._blocks if block not in self._uses)
        evicted = [block for block, _ in zip(unused, range(excess), strict=False)]
        for block in evicted:
            del self._blocks[block]
            self._known.pop(block, None)
        return evicted


def digest_of(content: bytes | memoryview) -> bytes:
    """Return the XXH3 digest of some content; it has 16 bytes (https://xxhash.com)."""
    return xxhash.xxh3_128_digest(content)


@lru_cache(maxsize=16)
def _zeros_digest(nbytes: int) -> bytes:
    return digest_of(bytes(nbytes))


def _blocks(place: Range) -> range:
    return range(place.start // PIECE_BYTES, -(-place.end // PIECE_BYTES))


def _without(one: Range, removed: Range) -> list[Range]:
    """Return the parts of a range outside of another one."""
    before = Range(one.start, min(one.end, removed.start))
    after = Range(max(one.start, removed.end), one.end)
    return [part for part in (before, after) if part.start < part.end]
