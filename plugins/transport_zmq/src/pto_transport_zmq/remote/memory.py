"""The content of memory between two hosts: home memory, its shadow, changes and digests.

Home memory is the memory of the parent's host. It is authoritative. The shadow, on the remote
host, is a copy of parts of it at the same addresses::

    relay: HomeMemory                                     gateway: ShadowMemory
      admit:    which pieces does the shadow lack?
      content:  these pieces             -- Push -->      copied before the frame
                                                          the frame runs
      write:    apply the changed bytes  <-- Result --    changes since the copy

The shadow begins with zeros, and a block that it evicts becomes zero. So memory that is still
zero, such as that of a new allocation, is not sent.

Invariants: ``HomeMemory._known[piece]`` is the digest of the piece in the shadow after all frames
that were sent have ended, unless a frame in flight writes the piece. Digests only save traffic:
without the table, everything is sent. No byte outside the ranges of a frame's arguments is written.
"""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote import TABLE_BYTES
from pto_transport_zmq.remote.address_space import (
    PIECE_BYTES,
    PIECES_PER_STEP,
    Access,
    AddressSpace,
    Range,
    pieces_of,
)
from pto_transport_zmq.remote.lease import now_ns

# ---- the changed bytes of a piece of memory, as a message ----
#
# A task may write a part of an output, and another host may write the other bytes. So a message has
# exactly the bytes that differ from the content before the task, even where a longer range would
# take fewer bytes:
#
# ``W``  all bytes of the piece, where all differ
# ``R``  runs: u32 count, then u32 offset and u32 length of each, then their bytes
# ``B``  a bit for each byte of the piece, the first bit of a byte first, then the changed bytes
#
# A piece without a change has an empty message.

_COUNT = struct.Struct("<I")
_RUN_BYTES = 8
_Bytes = npt.NDArray[np.uint8]


def changes(before: bytes | memoryview, after: memoryview) -> bytes:
    """Return the message for the bytes in which ``after`` differs from ``before``."""
    old, new = _array(before), _array(after)
    if np.array_equal(old, new):
        return b""
    changed = old != new
    if changed.all():
        return whole(after)
    edges = np.flatnonzero(np.diff(changed, prepend=False, append=False))
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]
    count = int(lengths.sum())
    runs_bytes = _COUNT.size + len(starts) * _RUN_BYTES + count
    bits_bytes = -(-len(new) // 8) + count
    if bits_bytes < runs_bytes:
        return b"B" + bytes(np.packbits(changed, bitorder="little")) + bytes(new[changed])
    table = np.stack([starts, lengths], axis=1).astype("<u4")
    return b"R" + _COUNT.pack(len(starts)) + bytes(table) + bytes(new[changed])


def whole(content: memoryview) -> bytes:
    """Return the message with all bytes of a piece; used for memory allocated for the task."""
    return b"W" + content.tobytes()


def apply_changes(message: bytes | memoryview, target: memoryview) -> None:
    """Write exactly the changed bytes into a piece.

    Raises ProtocolError for an invalid message, and writes nothing then.
    """
    view = memoryview(message)
    if not view:
        return
    form, content = bytes(view[:1]), _array(view[1:])
    into = _array(target)
    if form == b"W" and len(content) == len(into):
        into[:] = content
    elif form == b"B":
        _apply_bits(content, into)
    elif form == b"R":
        _apply_runs(content, into)
    else:
        raise _invalid(view, into)


def _apply_bits(content: _Bytes, into: _Bytes) -> None:
    nbytes = -(-len(into) // 8)
    changed = np.unpackbits(content[:nbytes], count=len(into), bitorder="little").view(bool)
    if len(content) < nbytes or int(changed.sum()) != len(content) - nbytes:
        raise _invalid(content, into)
    into[changed] = content[nbytes:]


def _apply_runs(content: _Bytes, into: _Bytes) -> None:
    if len(content) < _COUNT.size:
        raise _invalid(content, into)
    (count,) = _COUNT.unpack(content[: _COUNT.size].tobytes())
    first = _COUNT.size + count * _RUN_BYTES
    if first > len(content):
        raise _invalid(content, into)
    table = content[_COUNT.size : first].view("<u4").astype(np.int64).reshape(count, 2)
    ends = table.sum(axis=1)
    is_ordered = bool(np.all(table[1:, 0] >= ends[:-1]))
    if count == 0 or not is_ordered or ends[-1] > len(into):
        raise _invalid(content, into)
    if int(table[:, 1].sum()) != len(content) - first:
        raise _invalid(content, into)
    offset = first
    for start, length in table.tolist():
        into[start : start + length] = content[offset : offset + length]
        offset += length


def _array(memory: bytes | memoryview) -> _Bytes:
    return np.frombuffer(memory, np.uint8)


def _invalid(message: memoryview | _Bytes, into: _Bytes) -> ProtocolError:
    return ProtocolError(
        f"a message of {len(message)} bytes for the changes of a piece of {len(into)} bytes "
        "is invalid"
    )


# ---- digests of home memory that the relays of one Worker share ----
#
# If several hosts read the same input at the same time, their relays compare the same pieces. Each
# relay stores the digest of a piece with the time at which it began to read the piece. Another
# relay uses the digest if the read began after its own frame could start: from then until the frame
# ends, the order of tasks keeps writers away from the input. Each relay begins at another part of
# the input, so N relays hash about one part of N each.
#
# The table is in memory that all relays map. There is no lock: each entry has a checksum, and an
# entry that two relays wrote at the same time counts as absent.

SMALLEST_BYTES = 1 << 16
"""Smaller pieces are not shared: to hash them takes about as long as to read an entry."""
_FIELDS = struct.Struct("<QQQ16s")  # start and end of the piece, start of the read in ns, digest
_CHECK_BYTES = 8
_ENTRY_BYTES = 64  # one cache line
_ENTRIES = TABLE_BYTES // _ENTRY_BYTES


class DigestTable(NamedTuple):
    """The table as a relay receives it. ``number``: the index of the relay among ``relays``."""

    address: int
    number: int
    relays: int

    def open(self) -> SharedDigests | None:
        """Return the digests; None for the only relay of a Worker."""
        if self.relays == 1:
            return None
        memory = (ctypes.c_uint8 * TABLE_BYTES).from_address(self.address)
        return SharedDigests(memoryview(memory).cast("B"), self.number / self.relays)


class SharedDigests:
    """The table in ``memory``, of :data:`TABLE_BYTES`; it begins with zeros.

    ``part``: the share of an input, from 0 to 1, at which this relay begins.
    """

    def __init__(self, memory: memoryview, part: float = 0.0) -> None:
        self._memory = memory
        self._part = part

    def find(self, piece: Range, since_ns: int) -> bytes | None:
        """Return the digest of a piece if its read began at ``since_ns`` or later."""
        offset = _offset_of(piece)
        entry = bytes(self._memory[offset : offset + _FIELDS.size + _CHECK_BYTES])
        start, end, begun_ns, digest = _FIELDS.unpack_from(entry)
        if (start, end) != piece or begun_ns < since_ns:
            return None
        return digest if entry[_FIELDS.size :] == _check(entry[: _FIELDS.size]) else None

    def store(self, piece: Range, begun_ns: int, digest: bytes) -> None:
        """Store the digest of a piece whose read began at ``begun_ns``."""
        fields = _FIELDS.pack(piece.start, piece.end, begun_ns, digest)
        offset = _offset_of(piece)
        self._memory[offset : offset + _FIELDS.size + _CHECK_BYTES] = fields + _check(fields)

    def in_order(self, pieces: Sequence[Range]) -> Sequence[Range]:
        """Return pieces in the order in which this relay compares them."""
        first = int(self._part * len(pieces))
        return [*pieces[first:], *pieces[:first]]


def _offset_of(piece: Range) -> int:
    return piece.start // PIECE_BYTES % _ENTRIES * _ENTRY_BYTES


def _check(fields: bytes) -> bytes:
    return xxhash.xxh3_64_digest(fields)


# ---- home memory, as the relay of one remote child uses it ----

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
    """A frame whose pieces are being compared: the remaining pieces, and the stale pieces found."""

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
    """Selects the bytes to send to the shadow, and writes the results that return. One thread.

    ``quota``: the bytes of shadow memory, at least 1 MiB. Above the quota, blocks of 1 MiB that no
    frame in flight uses are evicted, the least recently used first. The shadow exceeds the quota
    only for a single frame that needs more. ``hashes_per_step``: the maximum number of pieces that
    one call of :meth:`admit` hashes. ``digests``: the digests that other relays share, if there are
    other relays.
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
        frame has ended: either the earlier frame may write a piece that has to be sent, or the
        frames in flight would need more memory than the quota. Raises ProtocolError for memory that
        is not shared.
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
    """Return the parts of a range that are outside of another range."""
    before = Range(one.start, min(one.end, removed.start))
    after = Range(max(one.start, removed.end), one.end)
    return [part for part in (before, after) if part.start < part.end]


# ---- the shadow, as the gateway uses it ----
#
# The gateway writes the content that arrives before a frame, and collects the results after it.
# Results stay here until the frame has succeeded; home memory is not changed before.


@dataclass(frozen=True)
class _Written:
    """A piece that a frame may write. ``before``: its content before the frame, if there is any."""

    place: Range
    before: bytes | None


@dataclass
class _Frame:
    """A frame in flight: the ranges that it may write, and the pieces of them that were copied."""

    written: Sequence[Access]
    pieces: deque[_Written] = field(default_factory=deque)


class ShadowMemory:
    """Holds the content of frames in flight. One thread.

    ``release``: frees the memory of a range of whole pages, which reads as zeros afterwards.
    ``pieces_per_step``: the maximum number of pieces that one call of :meth:`begin` copies.
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
