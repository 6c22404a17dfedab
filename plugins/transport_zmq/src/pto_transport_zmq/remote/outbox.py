"""The sending half of a channel.

Each message of the layers above gets the next sequence number, from 1, and is kept until the peer
acknowledges it. ``_waiting`` holds messages to transmit, ``_unacknowledged`` messages that were
transmitted. Together they hold the numbers ``acknowledged + 1`` to ``last_sequence``, in order. A
replay moves the second list back in front of the first. Only a request of the receiver starts a
replay; the sender has no timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from pto_core.errors import CapacityError, ProtocolError, UsageError
from pto_transport_zmq.remote.wire import (
    FIRST_FREE_KIND,
    LIMITS,
    MAX_KIND,
    MAX_PARTS,
    ChannelNumber,
    Part,
)

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
        """Queue a message; :meth:`pto_transport_zmq.remote.channel.Channel.send` describes it."""
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
        """Apply an acknowledgement and credits. Values older than the known ones are ignored."""
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
