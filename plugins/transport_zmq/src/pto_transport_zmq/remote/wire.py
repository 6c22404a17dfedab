"""The messages between two hosts: their heads and limits, and the channels that deliver them.

A message is a sequence of parts. The first part is the head: exactly ``HEAD_BYTES`` bytes, little
endian, without padding. The other parts are the body; the boundaries between them carry no meaning.
``docs/remote-protocol.md`` describes the members.

Every value of a received head is checked before use. An invalid message raises
:class:`~pto_core.errors.ProtocolError`. Bodies are opaque to this module.

A channel turns a lossy link into a reliable, ordered sequence of messages::

    send --> Outbox --> link, which may lose, repeat, reorder --> Inbox --> delivered once, in order
               ^                                                    |
               +---- acknowledged number, credits, replays ---------+
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from pto_core.errors import CapacityError, ProtocolError, UsageError

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


# ---- the receiving half of a channel ----
#
# Messages are accepted strictly in order of their sequence numbers. A lower number is a duplicate
# and is dropped. A higher number reveals a gap: the message is dropped, and the peer transmits it
# again. A control message is held until the bulk messages that it names were delivered, and so are
# the control messages behind it.
#
# The peer may transmit numbers up to ``granted``. For control messages each delivery frees its
# space; for bulk messages :meth:`Inbox.consumed` does.


class Message(NamedTuple):
    """A delivered message."""

    channel: int
    kind: int
    sequence: int
    body: Sequence[Part]


class Inbox:
    """Puts received messages in order, and holds messages that wait for bulk messages."""

    def __init__(self, number: ChannelNumber) -> None:
        self.limits = LIMITS[number]
        self.accepted = 0
        """The newest number that was delivered or is held."""
        self.delivered = 0
        """The newest number that was delivered. Only delivered messages are acknowledged."""
        self.delivered_bytes = 0
        """The bytes in the bodies of all delivered messages."""
        self.granted = self.limits.messages
        """The newest number that the peer may transmit."""
        self._number = int(number)
        self._held: deque[tuple[int, int, Message]] = deque()  # after_bulk, length, message
        self._held_bytes = 0
        self._bulk_delivered = 0

    def accept(self, head: Head, body: Sequence[Part]) -> list[Message]:
        """Accept the message ``accepted + 1``; return it if it is delivered now."""
        sequence = self.accepted = head.sequence
        message = Message(self._number, head.kind, sequence, body)
        if self._held or head.after_bulk > self._bulk_delivered:
            self._hold(head, message)
            return []
        self._deliver(sequence, head.body_bytes)
        return [message]

    def bulk_delivered(self, number: int) -> list[Message]:
        """Return the held messages that are delivered after bulk message ``number``."""
        self._bulk_delivered = number
        delivered: list[Message] = []
        while self._held and self._held[0][0] <= number:
            _, length, message = self._held.popleft()
            self._held_bytes -= length
            self._deliver(message.sequence, length)
            delivered.append(message)
        return delivered

    def consumed(self, count: int) -> None:
        """Grant credits for ``count`` delivered bulk messages whose memory was freed."""
        unconsumed = self.delivered + self.limits.messages - self.granted
        if not 0 <= count <= unconsumed:
            raise UsageError(
                f"{count} messages cannot be consumed; {unconsumed} delivered messages are not "
                "consumed yet",
                name="count",
                value=count,
            )
        self.granted += count

    def _deliver(self, sequence: int, length: int) -> None:
        self.delivered = sequence
        self.delivered_bytes += length
        if self._number == ChannelNumber.CONTROL:
            self.granted = sequence + self.limits.messages

    def _hold(self, head: Head, message: Message) -> None:
        held_bytes = self._held_bytes + head.body_bytes
        if held_bytes > self.limits.bytes:
            raise ProtocolError(
                f"the peer sent {held_bytes} bytes of control messages that wait for bulk "
                f"messages; the limit is {self.limits.bytes}"
            )
        self._held.append((head.after_bulk, head.body_bytes, message))
        self._held_bytes = held_bytes


# ---- the sending half of a channel ----
#
# Each message of the layers above gets the next sequence number, from 1, and is kept until the peer
# acknowledges it. ``_waiting`` holds messages to transmit, ``_unacknowledged`` messages that were
# transmitted. Together they hold the numbers ``acknowledged + 1`` to ``last_sequence``, in order. A
# replay moves the second list back in front of the first. Only a request of the receiver starts a
# replay; the sender has no timer.

Entry: TypeAlias = tuple[int, int, int, int, Sequence[Part]]
"""A message: sequence number, kind, ``after_bulk``, length of the body, body."""


class Outbox:
    """The messages that were sent and are not acknowledged."""

    def __init__(self, number: ChannelNumber) -> None:
        self.limits = LIMITS[number]
        self.last_sequence = 0
        """The number of the newest message that was passed to :meth:`send`."""
        self.transmitted = 0
        """The newest number that was ever transmitted."""
        self.acknowledged = 0
        """The newest number that the peer has acknowledged."""
        self._is_bulk = number is ChannelNumber.BULK
        self._credits = 0  # the newest number that may be transmitted
        self._waiting: deque[Entry] = deque()
        self._unacknowledged: deque[Entry] = deque()
        self._kept_bytes = 0  # bytes in the bodies of both lists

    @property
    def kept_bytes(self) -> int:
        """The bytes in the bodies of all kept messages."""
        return self._kept_bytes

    def send(self, kind: int, parts: Sequence[Part], after_bulk: int) -> int | None:
        """Queue a message; :meth:`pto_transport_zmq.remote.wire.Channel.send` describes it."""
        length = sum(map(len, parts))
        limits = self.limits
        if length > limits.body_bytes or len(parts) >= MAX_PARTS:
            raise _too_large(length, len(parts), limits.body_bytes)
        if not FIRST_FREE_KIND <= kind <= MAX_KIND or (after_bulk and self._is_bulk):
            raise _invalid_send(kind, after_bulk)
        if (
            len(self._waiting) + len(self._unacknowledged) >= limits.messages
            or self._kept_bytes + length > limits.bytes
        ):
            return None
        self.last_sequence += 1
        self._kept_bytes += length
        self._waiting.append((self.last_sequence, kind, after_bulk, length, parts))
        return self.last_sequence

    def take(self) -> Entry | None:
        """Return the next message to transmit, or None if there is none or no credit."""
        waiting = self._waiting
        if not waiting or waiting[0][0] > self._credits:
            return None
        entry = waiting.popleft()
        self._unacknowledged.append(entry)
        if entry[0] > self.transmitted:
            self.transmitted = entry[0]
        return entry

    def note(self, acknowledged: int, credits: int) -> None:
        """Apply an acknowledgement and credits; ignore values that are older than known values."""
        if acknowledged > self.transmitted:
            raise ProtocolError(
                f"the peer acknowledged message {acknowledged}, but the newest that was sent is "
                f"{self.transmitted}"
            )
        if credits > self.transmitted + self.limits.messages:
            raise ProtocolError(
                f"the peer granted credits up to message {credits}; the limit is "
                f"{self.transmitted + self.limits.messages}"
            )
        if credits > self._credits:
            self._credits = credits
        if acknowledged > self.acknowledged:
            self.acknowledged = acknowledged
            for messages in (self._unacknowledged, self._waiting):
                while messages and messages[0][0] <= acknowledged:
                    self._kept_bytes -= messages.popleft()[3]

    def rewind(self) -> None:
        """Transmit all kept messages again."""
        self._waiting.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()


def _too_large(length: int, parts: int, limit: int) -> CapacityError:
    if parts >= MAX_PARTS:
        return CapacityError(
            f"a message has {parts} parts; the limit is {MAX_PARTS - 1}; join small parts",
            name="parts",
            value=parts,
            limit=MAX_PARTS - 1,
        )
    return CapacityError(
        f"the body of a message has {length} bytes; the limit is {limit}; divide it",
        name="body_bytes",
        value=length,
        limit=limit,
    )


def _invalid_send(kind: int, after_bulk: int) -> UsageError:
    if not FIRST_FREE_KIND <= kind <= MAX_KIND:
        message = f"message kind {kind} is outside {FIRST_FREE_KIND} to {MAX_KIND}"
        return UsageError(message, name="kind", value=kind)
    message = f"a bulk message cannot wait for bulk message {after_bulk}"
    return UsageError(message, name="after_bulk", value=after_bulk)


# ---- both halves of a channel ----
#
# This is a state machine. It has no socket, thread or clock; times are arguments, in nanoseconds of
# one clock that never goes back. Each message is delivered once and in order, whatever the link
# loses, repeats or reorders, as long as the two sides reach each other again.
#
# The receiver requests a replay when a head states a newer sequence number than it has accepted: at
# once for a new gap, then once per heartbeat until the gap is closed. Heads without a number of
# their own state the newest number that was transmitted, and each side sends a head at least once
# per heartbeat. So the loss of the last message, or of the request, is found after one heartbeat.

_HEARTBEAT: Final = int(Kind.HEARTBEAT)
_REPLAY: Final = int(Kind.REPLAY)
_NO_GAP: Final = -1


class Channel:
    """One side of one channel."""

    def __init__(
        self, number: ChannelNumber, session: bytes, epoch: int, heartbeat_ns: int, now: int
    ) -> None:
        self.outbox = Outbox(number)
        self.inbox = Inbox(number)
        self.is_open = False
        """Whether messages may be transmitted: a greeting was exchanged on this connection."""
        self.heard_ns = now
        """The time at which the newest clock of the peer arrived."""
        self.echoed_ns = now
        """The newest time of this side's clock that the peer has sent back."""
        self.sent_ns = now
        """The time of this side's clock in the head of the last message that it sent."""
        self._number = int(number)
        self._session = session
        self._epoch = epoch
        self._heartbeat_ns = heartbeat_ns
        self._peer_clock_ns = 0
        # as stated in our last head: delivered messages, their bytes, credits
        self._stated = (0, 0, 0)
        self._is_head_due = False
        self._is_replay_due = False
        self._requested = (_NO_GAP, 0)  # the gap of the last request for a replay, and its time

    def send(self, kind: int, parts: Sequence[Part], after_bulk: int = 0) -> int | None:
        """Queue a message; return its sequence number, or None if there is no space.

        There is space again when the peer has acknowledged older messages. The channel keeps the
        parts until then and may transmit them again: they must not change before the peer has used
        them. A control message with ``after_bulk=n`` is delivered after bulk message ``n``.
        """
        return self.outbox.send(kind, parts, after_bulk)

    def outgoing(self, now: int, limit: int) -> list[list[Part]]:
        """Return at most ``limit`` messages to transmit now, each as a list of parts.

        The link may lose a returned message; the peer then requests it again.
        """
        if not self.is_open or limit < 1:
            return []
        messages: list[list[Part]] = []
        if self._is_replay_due:
            self._is_replay_due = False
            messages.append([self.head(_REPLAY, now)])
        take = self.outbox.take
        while len(messages) < limit and (entry := take()):
            sequence, kind, after_bulk, length, parts = entry
            messages.append([self._pack(kind, sequence, after_bulk, length, now), *parts])
        if not messages and self._is_heartbeat_due(now):
            messages.append([self.head(_HEARTBEAT, now)])
        return messages

    def head(self, kind: int, now: int, body_bytes: int = 0) -> bytes:
        """Return the head of a message that has no sequence number of its own."""
        return self._pack(kind, self.outbox.transmitted, 0, body_bytes, now)

    def received(self, head: Head, body: Sequence[Part], now: int) -> list[Message]:
        """Handle a message that is not a greeting; return the messages that it delivers.

        Raises ``ProtocolError`` if the peer broke a rule; the channel is unusable after it.
        """
        self.note(head, now)
        inbox = self.inbox
        sequence = head.sequence
        if head.kind >= FIRST_FREE_KIND:
            if sequence == inbox.accepted + 1:
                return inbox.accept(head, body)
            if sequence <= inbox.accepted:
                self._is_head_due = True  # a repetition, because our acknowledgement may be lost
        elif head.kind == _REPLAY and head.acknowledged == self.outbox.acknowledged:
            self.outbox.rewind()
        if sequence > inbox.accepted:
            self._request_replay(now)
        return []

    def note(self, head: Head, now: int) -> None:
        """Check the numbers of a head; apply its acknowledgement, credits and clocks."""
        if head.sequence > self.inbox.granted:
            raise ProtocolError(
                f"the peer sent message {head.sequence}, but its credits end at "
                f"{self.inbox.granted}"
            )
        self.outbox.note(head.acknowledged, head.credits)
        if head.echo_ns > self.sent_ns:
            raise ProtocolError(
                f"the peer echoed the clock {head.echo_ns}, but the newest that was sent is "
                f"{self.sent_ns}"
            )
        if head.echo_ns > self.echoed_ns:
            self.echoed_ns = head.echo_ns
        if head.clock_ns > self._peer_clock_ns:
            self._peer_clock_ns = head.clock_ns
            self.heard_ns = now

    def disconnected(self) -> None:
        """Transmit nothing until :meth:`resume`."""
        self.is_open = False

    def resume(self, head: Head, now: int) -> None:
        """Transmit again: ``head`` is the head of the peer's greeting on this connection.

        A head follows at once. It shows the peer which messages were lost, and renews the lease.
        """
        self.note(head, now)
        self.is_open = True
        self._is_head_due = True

    def _is_heartbeat_due(self, now: int) -> bool:
        """Return whether the peer needs a head now, although there is no message for it.

        The peer needs acknowledgements and credits before a quarter of a limit is used up.
        """
        inbox = self.inbox
        delivered, delivered_bytes, granted = self._stated
        quarter = inbox.limits.messages // 4
        return (
            self._is_head_due
            or now - self.sent_ns >= self._heartbeat_ns
            or inbox.delivered - delivered >= quarter
            or inbox.granted - granted >= quarter
            or inbox.delivered_bytes - delivered_bytes >= inbox.limits.bytes // 4
        )

    def _request_replay(self, now: int) -> None:
        gap, requested_ns = self._requested
        if gap != self.inbox.accepted or now - requested_ns >= self._heartbeat_ns:
            self._requested = (self.inbox.accepted, now)
            self._is_replay_due = True

    def _pack(self, kind: int, sequence: int, after_bulk: int, body_bytes: int, now: int) -> bytes:
        inbox = self.inbox
        self.sent_ns = now
        self._stated = (inbox.delivered, inbox.delivered_bytes, inbox.granted)
        self._is_head_due = False
        return pack_head(
            MAGIC,
            VERSION,
            kind,
            self._session,
            self._epoch,
            self._number,
            sequence,
            inbox.delivered,
            inbox.granted,
            after_bulk,
            now,
            self._peer_clock_ns,
            body_bytes,
        )
