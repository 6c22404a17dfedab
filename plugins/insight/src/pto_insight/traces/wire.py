"""The wire format of Protocol Buffers, as far as the writers of traces need it."""

from __future__ import annotations

from functools import cache

_SMALL = [bytes([value]) for value in range(0x80)]


def varint(number: int, value: int) -> bytes:
    """Return a field with an integer that is not negative."""
    return tag(number, 0) + base128(value)


def field(number: int, content: bytes) -> bytes:
    """Return a field with bytes or a message."""
    return tag(number, 2) + base128(len(content)) + content


def text(number: int, content: str) -> bytes:
    """Return a field with a text."""
    return field(number, content.encode(errors="backslashreplace"))


@cache
def tag(number: int, kind: int) -> bytes:
    """Return the head of a field."""
    return base128(number << 3 | kind)


def base128(value: int) -> bytes:
    """Return an integer that is not negative, seven bits in each byte."""
    if value <= 0x7F:
        return _SMALL[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
