"""The head of a message: its bytes, and the refusal of every invalid one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.wire import (
    HEAD_BYTES,
    LIMITS,
    MAGIC,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    VERSION,
    Head,
    Kind,
    pack_head,
    pack_text,
    unpack,
    unpack_text,
    version_of,
)

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
HEAD = Head(MAGIC, VERSION, 100, bytes(range(16)), 7, 0, 11, 9, 4105, 3, 5_000, 4_000, 5)
SIZES = {"kind": 2, "epoch": 4, "channel": 4}


def packed(**changes: object) -> list[bytes]:
    return [pack_head(*HEAD._replace(**changes)), b"12", b"345"]


def vector_head(vector: dict) -> Head:
    members = dict(vector["head"])
    for name in ("magic", "session"):
        members[name] = bytes.fromhex(members[name])
    return Head(**members)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_stored_messages_keep_their_bytes(vector):
    message = [bytes.fromhex(part) for part in vector["parts"]]
    head = vector_head(vector)
    assert unpack(message) == head
    assert pack_head(*head) == message[0]


def test_a_head_returns_as_it_was_packed():
    assert unpack(packed()) == HEAD
    assert unpack([memoryview(part) for part in packed()]) == HEAD
    assert len(packed()[0]) == HEAD_BYTES == 88


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": b"PTOX"}, "starts with b'PTOX'"),
        ({"version": 2}, "protocol version 2, but this side uses version 1"),
        ({"kind": 0}, "unknown kind 0"),
        ({"kind": 8}, "unknown kind 8"),
        ({"kind": 15}, "unknown kind 15"),
        ({"channel": 2}, "names channel 2"),
        ({"channel": 0xFFFF_FFFF}, "names channel 4294967295"),
        ({"channel": 1}, "waits for bulk message 3"),
        ({"body_bytes": 4}, "body of 4 bytes, but 5 arrived"),
        ({"body_bytes": 2**64 - 1}, "body of 18446744073709551615 bytes, but 5 arrived"),
        ({"kind": Kind.HEARTBEAT, "after_bulk": 0}, "body of 5 bytes; the limit is 0"),
        ({"kind": Kind.REPLAY, "after_bulk": 0}, "body of 5 bytes; the limit is 0"),
        ({"kind": Kind.HELLO}, "only control messages of the layers above may wait"),
    ],
)
def test_an_invalid_member_is_refused_by_name_and_value(changes, reason):
    with pytest.raises(ProtocolError, match=reason):
        unpack(packed(**changes))


@pytest.mark.parametrize(
    ("channel", "kind", "limit"),
    [
        (0, 16, LIMITS[0].body_bytes),
        (1, 0xFFFF, LIMITS[1].body_bytes),
        (0, Kind.HELLO, 256),
        (0, Kind.REFUSED, MAX_TEXT_BYTES),
        (1, Kind.ENDED, MAX_TEXT_BYTES),
    ],
)
def test_a_body_has_a_limit(channel, kind, limit):
    whole = memoryview(bytes(limit + 1))
    head = HEAD._replace(channel=channel, kind=kind, after_bulk=0)
    for size in (0, limit):
        unpack([pack_head(*head._replace(body_bytes=size)), whole[:size]])
    with pytest.raises(ProtocolError, match=f"the limit is {limit}"):
        unpack([pack_head(*head._replace(body_bytes=limit + 1)), whole])


def test_parts_have_a_limit():
    head = pack_head(*HEAD._replace(body_bytes=0))
    unpack([head, *[b""] * (MAX_PARTS - 1)])
    with pytest.raises(ProtocolError, match=f"{MAX_PARTS + 1} parts"):
        unpack([head, *[b""] * MAX_PARTS])


def test_a_truncated_head_is_refused():
    head, *body = packed()
    for size in [*range(HEAD_BYTES), HEAD_BYTES + 1]:
        with pytest.raises(ProtocolError, match=f"{size} bytes; a head has {HEAD_BYTES}"):
            unpack([(head + b"x")[:size], *body])
    with pytest.raises(ProtocolError, match="without parts"):
        unpack([])


def test_the_version_of_a_future_head_is_named():
    future = pack_head(*HEAD._replace(version=9))[:40]
    assert version_of([future]) == 9
    with pytest.raises(ProtocolError, match="version 9, but this side uses version 1"):
        unpack([future])
    assert version_of([b"PTO"]) is None
    assert version_of([b"HTTP/1.1"]) is None
    assert version_of([]) is None


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.binary(max_size=120), max_size=4), st.randoms(use_true_random=False))
def test_random_bytes_only_raise_protocol_errors(message, random):
    valid = packed()
    bits = bytearray(valid[0])
    for _ in range(random.randrange(4)):
        bits[random.randrange(len(bits))] ^= 1 << random.randrange(8)
    for each in (message, [bytes(bits), *valid[1:]], [bytes(bits), *message]):
        try:
            head = unpack(each)
        except ProtocolError:
            continue
        assert head.body_bytes == sum(map(len, each[1:]))


def test_a_text_is_limited_and_cannot_control_a_terminal():
    assert unpack_text([pack_text("wrong version")]) == "wrong version"
    assert unpack_text([b"a\x1b[31mb\n", b"\xff\x00"]) == "a [31mb \ufffd "
    assert len(pack_text("\u00e9" * MAX_TEXT_BYTES)) == MAX_TEXT_BYTES
    assert len(unpack_text([b"a" * (2 * MAX_TEXT_BYTES)])) == MAX_TEXT_BYTES
