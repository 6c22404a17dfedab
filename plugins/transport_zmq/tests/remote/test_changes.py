"""Exactly the changed bytes of a piece arrive, and invalid messages write nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.memory import apply_changes, changes, whole

PIECES = st.binary(min_size=1, max_size=300)


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    before = draw(PIECES)
    after = bytearray(before)
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(after) - 1))
        part = draw(st.binary(min_size=1, max_size=len(after) - start))
        after[start : start + len(part)] = part
    return before, bytes(after)


@given(edited())
def test_exactly_the_changed_bytes_arrive(pair: tuple[bytes, bytes]) -> None:
    before, after = pair
    message = changes(before, memoryview(after))
    for other in (before, bytes(255 - byte for byte in before)):
        target = bytearray(other)
        apply_changes(message, memoryview(target))
        expected = [
            new if new != old else kept for old, new, kept in zip(before, after, other, strict=True)
        ]
        assert list(target) == expected


@given(PIECES)
def test_all_bytes_of_new_memory_arrive(content: bytes) -> None:
    target = bytearray(255 - byte for byte in content)
    apply_changes(whole(memoryview(content)), memoryview(target))
    assert target == content


def test_a_piece_without_a_change_has_an_empty_message() -> None:
    assert changes(b"same", memoryview(b"same")) == b""


def test_a_message_is_not_much_longer_than_the_changed_bytes() -> None:
    before = bytes(1 << 20)
    for step in (2, 3, 100, 5000):
        after = np.zeros(1 << 20, np.uint8)
        after[::step] = 1
        changed = int(after.sum())
        message = changes(before, memoryview(after))
        assert len(message) <= changed + min(8 * changed + 8, (1 << 17) + 8)


@given(st.binary(max_size=60), st.integers(1, 20))
def test_an_invalid_message_is_refused_and_writes_nothing(message: bytes, nbytes: int) -> None:
    target = bytearray(nbytes)
    try:
        apply_changes(message, memoryview(target))
    except ProtocolError:
        assert target == bytes(nbytes)


@pytest.mark.parametrize(
    "message",
    [
        b"W" + bytes(7),
        b"W" + bytes(9),
        b"X" + bytes(8),
        b"B",
        b"B\x03a",
        b"B\x03abc",
        b"R",
        b"R\0\0\0\0",
        b"R\xff\xff\xff\xff" + bytes(8),
        b"R\x01\0\0\0" + b"\x07\0\0\0\x02\0\0\0" + b"ab",
        b"R\x02\0\0\0" + b"\x04\0\0\0\x01\0\0\0" + b"\x02\0\0\0\x01\0\0\0" + b"ab",
        b"R\x01\0\0\0" + b"\x00\0\0\0\x02\0\0\0" + b"abc",
    ],
)
def test_these_messages_are_refused(message: bytes) -> None:
    target = bytearray(8)
    with pytest.raises(ProtocolError, match="a piece of 8 bytes is invalid"):
        apply_changes(message, memoryview(target))
    assert target == bytes(8)
