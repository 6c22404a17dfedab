"""Identities: the properties in which two hosts must match, and the message for a mismatch."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from remote_link import IDENTITY

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.session import GREETING_BYTES, Identity, mismatches


def test_an_identity_returns_as_it_was_packed():
    for identity in (
        IDENTITY,
        Identity("1.2.3rc1+local_5", 10_000_000, 65536, "big"),
    ):
        packed = identity.pack()
        assert len(packed) == GREETING_BYTES
        assert Identity.unpack([packed[:5], packed[5:]]) == identity


def test_the_largest_page_size_is_accepted():
    largest = replace(IDENTITY, page_bytes=1 << 30)
    assert Identity.unpack([largest.pack()]) == largest


def test_the_identity_of_this_process():
    identity = Identity.of_this_process("1.0", 3_000_000_000)
    assert identity.page_bytes == resource.getpagesize()
    assert identity.byte_order == sys.byteorder


def test_all_mismatches_are_named():
    other = Identity("2.0", 4_000_000_000, 65536, "big")
    assert len(mismatches(IDENTITY, other)) == 4
    assert mismatches(IDENTITY, IDENTITY) == []


@pytest.mark.parametrize(
    ("place", "value", "name"),
    [
        (slice(0, 4), bytes(4), "page size 0"),
        (slice(0, 4), b"\xff\xff\xff\xff", "page size 4294967295"),
        (slice(6, 7), b"\x00", "byte order 0"),
        (slice(6, 7), b"\x03", "byte order 3"),
        (slice(8, 16), bytes(8), "lease 0"),
        (slice(8, 16), b"\xff" * 8, "lease 18446744073709551615"),
        (slice(16, 48), bytes(32), "core version ''"),
        (slice(16, 48), b"\x1b[2J".ljust(32, b"\0"), "core version"),
        (slice(16, 48), b"1\0002".ljust(32, b"\0"), "core version"),
    ],
)
def test_an_invalid_member_is_refused(place, value, name):
    packed = bytearray(IDENTITY.pack())
    packed[place] = value
    with pytest.raises(ProtocolError, match=name):
        Identity.unpack([packed])


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=64) | st.binary(min_size=GREETING_BYTES, max_size=GREETING_BYTES))
def test_random_bytes_only_raise_protocol_errors(packed):
    try:
        identity = Identity.unpack([packed])
    except ProtocolError:
        return
    assert Identity.unpack([identity.pack()]) == identity


def test_an_identity_needs_a_version_that_can_travel():
    with pytest.raises(UsageError, match="not a version"):
        replace(IDENTITY, core_version="1" * 33)
