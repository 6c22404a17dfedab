"""Digests of home memory that the relays of one Worker share, so an input is hashed once.

If several hosts read the same input at the same time, their relays compare the same pieces. Each
relay stores the digest of a piece with the time at which it began to read the piece. Another relay
uses the digest if the read began after its own frame could start: from then until the frame ends,
the order of tasks keeps writers away from the input. Each relay begins at another part of the
input, so N relays hash about one part of N each.

The table is in memory that all relays map. There is no lock: each entry has a checksum, and an
entry that two relays wrote at the same time counts as absent.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from pto_transport_zmq.remote.address_space import PIECE_BYTES, Range

SMALLEST_BYTES = 1 << 16
"""Smaller pieces are not shared: to hash them takes about as long as to read an entry."""
_FIELDS = struct.Struct("<QQQ16s")  # start and end of the piece, start of the read in ns, digest
_CHECK_BYTES = 8
_ENTRY_BYTES = 64  # one cache line
_ENTRIES = 1 << 14
TABLE_BYTES = _ENTRIES * _ENTRY_BYTES
"""The size of a table. It has one entry for each 1 MiB of an input of up to 16 GiB."""


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
