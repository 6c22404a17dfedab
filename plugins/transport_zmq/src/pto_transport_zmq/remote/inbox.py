"""The receiving half of a channel.

Messages are accepted strictly in order of their sequence numbers. A lower number is a duplicate and
is dropped. A higher number reveals a gap: the message is dropped, and the peer transmits it again.
A control message is held until the bulk messages that it names were delivered, and so are the
control messages behind it.

The peer may transmit numbers up to ``granted``. For control messages each delivery frees its space;
for bulk messages :meth:`Inbox.consumed` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.wire import LIMITS, ChannelNumber, Head, Part


class Message(NamedTuple):
    """A delivered message."""

    channel: int
    kind: int
    sequence: int
    body: Sequence[Part]


class Inbox:
    """Puts received messages in order, and holds those that wait for bulk messages."""

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
