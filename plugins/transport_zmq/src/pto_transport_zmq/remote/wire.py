"""The head of each message between two hosts, and the limits of messages.

A message is a sequence of parts. The first part is the head: exactly ``HEAD_BYTES`` bytes, little
endian, without padding. The other parts are the body; the boundaries between them carry no meaning.
``docs/remote-protocol.md`` describes the members.

Every value of a received head is checked before use. An invalid message raises
:class:`~pto_core.errors.ProtocolError`. Bodies are opaque to this module.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from pto_core.errors import ProtocolError

MAGIC: Final = b"PTOR"
VERSION: Final = 1
SESSION_BYTES: Final = 16
MAX_PARTS: Final = 1024
"""The largest number of parts of a message, with its head."""
MAX_TEXT_BYTES: Final = 4096
"""The largest number of bytes of a text for the user."""
FIRST_FREE_KIND: Final = 16
"""The smallest kind for the upper layers; they own all kinds up to ``MAX_KIND``."""
MAX_KIND: Final = 0xFFFF
MIB: Final = 1 << 20

Part: TypeAlias = bytes | bytearray | memoryview
"""One part of a message. A ``memoryview`` must have items of one byte."""

_HEAD = struct.Struct("<4sHH16sIIQQQQQQQ")
_VERSION = struct.Struct("<4sH")
HEAD_BYTES: Final = _HEAD.size


CHUNK_BYTES: Final = MIB + MIB // 8 + 4096
"""The longest body of a bulk message: 1 MiB, one bit for each of its bytes, and a head."""


class Kind(IntEnum):
    """The kinds of messages that sessions and channels exchange for their own purposes."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    HEARTBEAT = 4
    REPLAY = 5
    END = 6
    ENDED = 7


_GREETINGS = frozenset({Kind.HELLO, Kind.WELCOME})
_TEXTS = frozenset({Kind.REFUSED, Kind.END, Kind.ENDED})
_KINDS = frozenset(Kind)


class Limits(NamedTuple):
    """The limits of one channel; they are part of the protocol, equal on both sides."""

    body_bytes: int
    """The longest body of a message."""
    messages: int
    """The largest number of messages that wait for their acknowledgement, and of free credits."""
    bytes: int
    """The largest sum of the bytes of the messages that wait for their acknowledgement."""


class ChannelNumber(IntEnum):
    """The channels of a session."""

    CONTROL = 0
    BULK = 1


LIMITS: Final = (
    Limits(body_bytes=16 * MIB, messages=4096, bytes=64 * MIB),
    Limits(body_bytes=CHUNK_BYTES, messages=32, bytes=32 * CHUNK_BYTES),
)
"""The limits of each channel, by number."""


class Head(NamedTuple):
    """The head of a message, in the order of its bytes."""

    magic: bytes
    version: int
    kind: int
    session: bytes
    epoch: int
    channel: int
    sequence: int
    acknowledged: int
    credits: int
    after_bulk: int
    clock_ns: int
    echo_ns: int
    body_bytes: int


pack_head = _HEAD.pack
"""Return the bytes of a head; the arguments are the members of :class:`Head`."""


def unpack(message: Sequence[Part]) -> Head:
    """Return the head of a message. Raises ``ProtocolError`` if the message is invalid."""
    try:
        head = Head._make(_HEAD.unpack(message[0]))
    except (IndexError, struct.error, TypeError, ValueError, BufferError):
        raise _not_a_head(message) from None
    magic, version, kind, _, _, channel, _, _, _, after_bulk, _, _, body_bytes = head
    if (
        magic != MAGIC
        or version != VERSION
        or channel > ChannelNumber.BULK
        or len(message) > MAX_PARTS
        or body_bytes != sum(map(len, message[1:]))
    ):
        raise _invalid_message(head, message)
    if kind >= FIRST_FREE_KIND:
        if body_bytes > LIMITS[channel].body_bytes or (after_bulk and channel):
            raise _invalid_content(head)
    elif kind not in _KINDS or after_bulk or body_bytes > _internal_limit(kind):
        raise _invalid_content(head)
    return head


def version_of(message: Sequence[Part]) -> int | None:
    """Return the protocol version of a message; None if it is not a message of this protocol.

    The first six bytes have the same meaning in every version.
    """
    try:
        magic, version = _VERSION.unpack_from(message[0])
    except (IndexError, struct.error, TypeError, ValueError, BufferError):
        return None
    return int(version) if magic == MAGIC else None


def pack_text(text: str) -> bytes:
    """Return the body for a text that users read; a long text is cut."""
    return text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]


def unpack_text(body: Sequence[Part]) -> str:
    """Return the text of a body, without characters that control a terminal."""
    text = b"".join(body)[:MAX_TEXT_BYTES].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)


def _internal_limit(kind: int) -> int:
    if kind in _GREETINGS:
        return 256
    return MAX_TEXT_BYTES if kind in _TEXTS else 0


def _not_a_head(message: Sequence[Part]) -> ProtocolError:
    version = version_of(message)
    if version is not None and version != VERSION:
        return _other_version(version)
    if not message:
        return ProtocolError("a message without parts arrived; a head is missing")
    return ProtocolError(
        f"a message starts with a part of {len(message[0])} bytes; a head has {HEAD_BYTES}"
    )


def _other_version(version: int) -> ProtocolError:
    return ProtocolError(
        f"a message has protocol version {version}, but this side uses version {VERSION}; "
        "install the same version of ptorun-core on both hosts"
    )


def _invalid_message(head: Head, message: Sequence[Part]) -> ProtocolError:
    if head.magic != MAGIC:
        return ProtocolError(f"a message starts with {head.magic!r} instead of {MAGIC!r}")
    if head.version != VERSION:
        return _other_version(head.version)
    if head.channel > ChannelNumber.BULK:
        return ProtocolError(f"a message names channel {head.channel}; a session has 0 and 1")
    if len(message) > MAX_PARTS:
        return ProtocolError(f"a message has {len(message)} parts; the limit is {MAX_PARTS}")
    return ProtocolError(
        f"a head states a body of {head.body_bytes} bytes, but {sum(map(len, message[1:]))} arrived"
    )


def _invalid_content(head: Head) -> ProtocolError:
    kind, channel = head.kind, ChannelNumber(head.channel).name.lower()
    if kind < FIRST_FREE_KIND and kind not in _KINDS:
        return ProtocolError(f"a message has the unknown kind {kind}")
    if head.after_bulk and (head.channel or kind < FIRST_FREE_KIND):
        return ProtocolError(
            f"a message of kind {kind} in channel {channel} waits for bulk message "
            f"{head.after_bulk}; only control messages of the layers above may wait"
        )
    is_free = kind >= FIRST_FREE_KIND
    limit = LIMITS[head.channel].body_bytes if is_free else _internal_limit(kind)
    return ProtocolError(
        f"a message of kind {kind} in channel {channel} has a body of {head.body_bytes} bytes; "
        f"the limit is {limit}"
    )
