"""One channel of a session: a lossy link becomes a reliable, ordered sequence of messages.

This is a state machine. It has no socket, thread or clock; times are arguments, in nanoseconds of
one clock that never goes back. Each message is delivered once and in order, whatever the link
loses, repeats or reorders, as long as the two sides reach each other again.

The receiver requests a replay when a head states a newer sequence number than it has accepted: at
once for a new gap, then once per heartbeat until the gap is closed. Heads without a number of their
own state the newest number that was transmitted, and each side sends a head at least once per
heartbeat. So the loss of the last message, or of the request, is found after one heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.inbox import Inbox, Message
from pto_transport_zmq.remote.outbox import Outbox
from pto_transport_zmq.remote.wire import (
    FIRST_FREE_KIND,
    MAGIC,
    VERSION,
    ChannelNumber,
    Head,
    Kind,
    Part,
    pack_head,
)

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
