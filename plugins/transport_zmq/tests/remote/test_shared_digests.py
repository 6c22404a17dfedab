"""Relays of one Worker share digests, so an input of several hosts is hashed once."""

from __future__ import annotations

import numpy as np
import pytest

from pto_core import TensorArgType
from pto_transport_zmq.remote import TABLE_BYTES
from pto_transport_zmq.remote.address_space import PIECE_BYTES, Access, AddressSpace, Range
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.memory import (
    SMALLEST_BYTES,
    HomeMemory,
    SharedDigests,
    digest_of,
)

BASE = 4 * PIECE_BYTES
PIECES = 4
ENTRIES = TABLE_BYTES // 64
PIECE = Range(BASE, BASE + PIECE_BYTES)
DIGEST = bytes(range(16))


@pytest.fixture
def table() -> bytearray:
    return bytearray(TABLE_BYTES)


def test_a_digest_is_found_by_a_frame_that_could_start_before_the_read(table: bytearray) -> None:
    digests = SharedDigests(memoryview(table))
    assert digests.find(PIECE, 0) is None
    digests.store(PIECE, 100, DIGEST)
    other_relay = SharedDigests(memoryview(table), part=0.5)
    assert other_relay.find(PIECE, 100) == DIGEST
    assert other_relay.find(PIECE, 101) is None


@pytest.mark.parametrize(
    "other",
    [
        Range(PIECE.start, PIECE.end - 1),
        Range(PIECE.start + 1, PIECE.end),
        Range(PIECE.start + ENTRIES * PIECE_BYTES, PIECE.end + ENTRIES * PIECE_BYTES),
    ],
)
def test_another_piece_with_the_same_entry_has_no_digest(table: bytearray, other: Range) -> None:
    digests = SharedDigests(memoryview(table))
    digests.store(PIECE, 100, DIGEST)
    assert digests.find(other, 0) is None


def test_an_entry_that_two_relays_wrote_at_once_counts_as_absent(table: bytearray) -> None:
    digests = SharedDigests(memoryview(table))
    digests.store(PIECE, 100, DIGEST)
    (begin,) = {offset // 64 * 64 for offset, byte in enumerate(table) if byte}
    for offset in range(begin, begin + 48):
        table[offset] ^= 1
        assert digests.find(PIECE, 0) is None, f"byte {offset - begin} is not checked"
        table[offset] ^= 1
    assert digests.find(PIECE, 0) == DIGEST


def test_relays_begin_at_different_parts_of_an_input(table: bytearray) -> None:
    pieces = [Range(number, number + 1) for number in range(10)]
    orders = [SharedDigests(memoryview(table), number / 4).in_order(pieces) for number in range(4)]
    assert [order[0].start for order in orders] == [0, 2, 5, 7]
    assert all(sorted(order) == pieces for order in orders)


class Hosts:
    """The home memory of two relays, which compare one piece in each step."""

    def __init__(self, table: bytearray) -> None:
        self.content = np.full(PIECES * PIECE_BYTES, 7, np.uint8)
        space = AddressSpace([(BASE, memoryview(self.content))])
        self.homes = [
            HomeMemory(space, 1 << 40, 1, SharedDigests(memoryview(table), part))
            for part in (0.0, 0.5)
        ]
        self.frames = 0
        for home in self.homes:  # send the input to both hosts
            assert len(self.admitted(home)) == PIECES

    def begin(self, home: HomeMemory, nbytes: int = PIECES * PIECE_BYTES) -> list[Range] | None:
        """Compare one more piece of an input. After the last piece, return the stale ones."""
        frame = self.frames + 1
        access = Access(Range(BASE, BASE + nbytes), TensorArgType.INPUT, is_new=False)
        admitted = home.admit(frame, [access])
        if admitted is None:
            assert home.is_hashing
            return None
        self.frames = frame
        stale = [home.content(piece).place for piece in admitted.stale]
        home.finish(frame)
        return stale

    def admitted(self, home: HomeMemory, nbytes: int = PIECES * PIECE_BYTES) -> list[Range]:
        while True:
            stale = self.begin(home, nbytes)
            if stale is not None:
                return stale


def test_a_relay_uses_digests_that_another_one_computes_meanwhile(table: bytearray) -> None:
    hosts = Hosts(table)
    first, second = hosts.homes
    # the first step compares one piece, in the second half of the input
    assert hosts.begin(second) is None
    assert hosts.admitted(first) == []
    # A change that no program may make now. It shows that the second relay does not read again.
    hosts.content[:] += 1
    assert hosts.admitted(second) == []
    # The next frame starts after the change.
    assert len(hosts.admitted(second)) == PIECES
    assert len(hosts.admitted(first)) == PIECES


def test_a_digest_from_before_the_frame_is_not_used(table: bytearray) -> None:
    hosts = Hosts(table)
    first, second = hosts.homes
    assert hosts.admitted(first) == []
    hosts.content[PIECE_BYTES] += 1
    assert hosts.admitted(second) == [Range(BASE + PIECE_BYTES, BASE + 2 * PIECE_BYTES)]


def test_small_pieces_are_not_shared(table: bytearray) -> None:
    hosts = Hosts(table)
    nbytes = SMALLEST_BYTES - 1
    hosts.admitted(hosts.homes[0], nbytes)
    before = bytes(table)
    assert hosts.admitted(hosts.homes[0], nbytes) == []
    assert bytes(table) == before
    small = Range(BASE, BASE + nbytes)
    digests = SharedDigests(memoryview(table))
    digests.store(small, now_ns() + 10**12, digest_of(b"other content"))
    assert hosts.admitted(hosts.homes[0], nbytes) == []
