"""One side of a session between a relay and a gateway: greetings, lease, two channels, and the end.

This is a state machine. It has no socket, thread or clock; times are arguments, in nanoseconds of
one clock that never goes back (see :mod:`pto_transport_zmq.remote.lease`).

| state | meaning |
| --- | --- |
| ``CONNECTING`` | no greeting was exchanged yet in at least one channel |
| ``OPEN`` | both channels carry messages; a connection may be cut within the lease |
| ``ENDING`` | relay only: nothing more is delivered; the gateway may still run |
| ``OVER`` | nothing more is delivered; at the relay: the gateway's processes have ended |

A session never returns to an earlier state. The owner of a gateway that is ``OVER`` ends its
processes and then calls :meth:`RemoteSession.confirm_end`. The relay becomes ``OVER`` with that
confirmation, or when the gateway's lease and the time to end its processes have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.channel import Channel
from pto_transport_zmq.remote.greetings import Greetings
from pto_transport_zmq.remote.handshake import Identity, Side
from pto_transport_zmq.remote.inbox import Message
from pto_transport_zmq.remote.lease import SECOND, Lease
from pto_transport_zmq.remote.wire import (
    FIRST_FREE_KIND,
    SESSION_BYTES,
    VERSION,
    ChannelNumber,
    Head,
    Kind,
    Part,
    pack_text,
    unpack,
    unpack_text,
    version_of,
)

CONTROL: Final = ChannelNumber.CONTROL
BULK: Final = ChannelNumber.BULK
MAX_EPOCH: Final = 0xFFFF_FFFF
_LIMIT: Final = 4096
_HEARTBEAT: Final = int(Kind.HEARTBEAT)
_REPLAY: Final = int(Kind.REPLAY)


class State(IntEnum):
    """The states of a session, in their order."""

    CONNECTING = 0
    OPEN = 1
    ENDING = 2
    OVER = 3


_ENDING: Final = State.ENDING  # constants, because access to a member of an enum is slow
_OVER: Final = State.OVER


class RemoteSession:
    """One side of a session.

    ``session`` is the random name of the remote child, ``epoch`` counts its starts. Messages of
    another session or epoch are ignored.
    """

    def __init__(
        self, side: Side, identity: Identity, session: bytes, epoch: int, now: int
    ) -> None:
        if len(session) != SESSION_BYTES or not 1 <= epoch <= MAX_EPOCH:
            raise UsageError(
                f"a session has a name of {SESSION_BYTES} bytes and an epoch from 1 to "
                f"{MAX_EPOCH}; {len(session)} bytes and epoch {epoch} were passed"
            )
        self.side = side
        self.state = State.CONNECTING
        self.reason = ""
        """Why the session is ending or over; empty before."""
        self.lease = Lease(identity.lease_ns)
        heartbeat_ns = self._heartbeat_ns = self.lease.heartbeat_ns
        is_relay = side is Side.RELAY
        self._limit_ns = self.lease.relay_ns if is_relay else self.lease.gateway_ns
        self._silence_ns = self.lease.silence_ns
        self.control = Channel(CONTROL, session, epoch, heartbeat_ns, now)
        self.bulk = Channel(BULK, session, epoch, heartbeat_ns, now)
        self._session = session
        self._epoch = epoch
        self._greetings = Greetings(side, identity, session, epoch)
        self._is_confirmed = False  # the processes of the gateway have ended
        self._farewell_due_ns: int | None = None  # the time of the next END or ENDED

    @property
    def peer(self) -> Identity | None:
        """The identity of the other side, or None before its first greeting."""
        return self._greetings.peer

    def send(self, kind: int, parts: Sequence[Part], after_bulk: int = 0) -> int | None:
        """Queue a control message; see :meth:`.channel.Channel.send`."""
        return self.control.send(kind, parts, after_bulk)

    def send_bulk(self, kind: int, parts: Sequence[Part]) -> int | None:
        """Queue a bulk message; see :meth:`.channel.Channel.send`."""
        return self.bulk.send(kind, parts)

    def consumed(self, count: int) -> None:
        """Grant credits for ``count`` delivered bulk messages whose memory was freed."""
        self.bulk.inbox.consumed(count)

    def reconnected(self, channel: ChannelNumber, now: int) -> None:
        """Greet on a new connection, also on the first one. A gateway waits for the greeting.

        A relay sends HELLO. It transmits other messages after WELCOME.
        """
        self.advance(now)
        if self.side is Side.RELAY:
            self._channel(channel).disconnected()
            self._greetings.connect(channel, now)

    def outgoing(self, channel: ChannelNumber, now: int, limit: int = _LIMIT) -> list[list[Part]]:
        """Return at most ``limit`` messages to transmit now in this channel, each as its parts.

        Call this after each call of another method, and at :meth:`deadline_ns`, until it returns
        an empty list. The link may lose a returned message; the peer then requests it again.
        """
        if limit < 1:
            return []
        if self.advance(now) >= _ENDING:
            return self._farewell(channel, now)
        machine = self._channel(channel)
        if not self._greetings.is_pending:
            return machine.outgoing(now, limit)
        refusal = self._greetings.refusal(channel, now)
        if refusal is not None:
            return [refusal]
        greeting = self._greetings.due(channel, now, self._heartbeat_ns)
        if greeting is None:
            return machine.outgoing(now, limit)
        kind, body = greeting
        return [[machine.head(kind, now, len(body)), body]]

    def received(self, channel: ChannelNumber, message: Sequence[Part], now: int) -> list[Message]:
        """Handle a message from the link; return the messages that are delivered, in order.

        Control messages that waited for a bulk message follow it in the list. An invalid message
        ends the session and raises ``ProtocolError``. After the end nothing is delivered or raised.
        """
        if self.advance(now) >= _ENDING:
            self._received_after_end(message, now)
            return []
        try:
            return self._handle(channel, message, now)
        except ProtocolError as error:
            if self._refuses_version(channel, message):
                return []
            self._end(str(error), now)
            raise

    def advance(self, now: int) -> State:
        """End the session if the lease is over or the bulk channel is silent; return the state."""
        if self.state is _OVER:
            return self.state
        if now - self._renewed_ns() >= self._limit_ns:
            limit_s = self._limit_ns / SECOND
            self._over(f"{self.side.peer.value} has not answered for {limit_s:g} s")
        elif self.state < _ENDING and now - self.bulk.heard_ns >= self._silence_ns:
            silent_s = self._silence_ns / SECOND
            self._end(f"the bulk channel has carried nothing for {silent_s:g} s", now)
        return self.state

    def close(self, reason: str, now: int) -> None:
        """End the session. Queued messages are lost: the upper layers must agree on the end before.

        A relay requests the end of the gateway. A gateway is ``OVER`` at once.
        """
        if self.advance(now) < State.ENDING:
            self._end(reason, now)

    def confirm_end(self, now: int) -> None:
        """Confirm that all processes of the gateway have ended.

        At the gateway, call this when the session is over and its processes have ended; the relay
        is informed. At the relay, call this for a confirmation that arrived outside the session.
        """
        if self.side is Side.RELAY:
            self._over("the remote host has ended the session")
        elif self.advance(now) is State.OVER:
            self._is_confirmed = True
            self._farewell_due_ns = now
        else:
            raise UsageError("this session is not over; close it before you confirm its end")

    @property
    def deadline_ns(self) -> int | None:
        """The time at which :meth:`outgoing` must be called even without a message; None: never."""
        times = []
        if self.state < _OVER:
            times.append(self._renewed_ns() + self._limit_ns)
        if self.state < _ENDING:
            times.append(self.bulk.heard_ns + self._silence_ns)
            for channel in (self.control, self.bulk):
                if channel.is_open:
                    times.append(channel.sent_ns + self._heartbeat_ns)
        for time in (self._farewell_due_ns, self._greetings.deadline_ns):
            if time is not None:
                times.append(time)
        return min(times, default=None)

    def _renewed_ns(self) -> int:
        """Return the time of the last renewal of the lease."""
        control = self.control
        return control.heard_ns if self.side is Side.RELAY else control.echoed_ns

    def _channel(self, number: int) -> Channel:
        return self.bulk if number == BULK else self.control

    def _handle(self, channel: int, message: Sequence[Part], now: int) -> list[Message]:
        head = unpack(message)
        if head.channel != channel:
            raise ProtocolError(f"a message of channel {head.channel} arrived in channel {channel}")
        if head.session != self._session or head.epoch != self._epoch:
            if head.kind == Kind.HELLO and self.side is Side.GATEWAY:
                self._greetings.refuse_session(head)
            return []
        body = message[1:]
        if head.kind < FIRST_FREE_KIND and head.kind not in (_HEARTBEAT, _REPLAY):
            self._handle_greeting(head, list(body), now)
            return []
        if not self._greetings.is_established(channel):
            return []
        if channel == CONTROL:
            return self.control.received(head, body, now)
        delivered = self.bulk.received(head, body, now)
        if delivered:
            delivered += self.control.inbox.bulk_delivered(delivered[-1].sequence)
        return delivered

    def _handle_greeting(self, head: Head, body: list[Part], now: int) -> None:
        channel, kind = self._channel(head.channel), head.kind
        is_relay = self.side is Side.RELAY
        if is_relay and kind == Kind.REFUSED:
            raise ProtocolError(f"the remote host refused the session: {unpack_text(body)}")
        if is_relay and kind == Kind.ENDED:
            self._over(f"the remote host has ended the session: {unpack_text(body)}")
        elif not is_relay and kind == Kind.END:
            self._end(f"the parent's host has ended the session: {unpack_text(body)}", now)
        elif is_relay and kind == Kind.WELCOME:
            if self._greetings.welcome(head, body):
                channel.resume(head, now)
        elif not is_relay and kind == Kind.HELLO:
            if self._greetings.hello(head, body):
                channel.resume(head, now)
        else:
            raise ProtocolError(f"{self.side.peer.value} sent {Kind(kind).name}, which is invalid")
        if self.state is State.CONNECTING and self._greetings.is_complete:
            self.state = State.OPEN

    def _received_after_end(self, message: Sequence[Part], now: int) -> None:
        """Answer a relay that has not received the end, or accept the confirmation of a gateway."""
        if self.side is Side.GATEWAY:
            if self._is_confirmed:
                self._farewell_due_ns = now
        elif self.state is State.ENDING:
            try:
                head = unpack(message)
            except ProtocolError:
                return
            is_ours = head.session == self._session and head.epoch == self._epoch
            if is_ours and head.kind == Kind.ENDED:
                self._over("")

    def _refuses_version(self, channel: int, message: Sequence[Part]) -> bool:
        """Refuse a greeting of another protocol version; return whether the message is one."""
        version = version_of(message)
        is_greeting = self.side is Side.GATEWAY and self.state is State.CONNECTING
        if not is_greeting or version in (None, VERSION):
            return False
        self._greetings.refuse_version(channel, int(version or 0))
        return True

    def _farewell(self, channel: int, now: int) -> list[list[Part]]:
        due_ns = self._farewell_due_ns
        if channel != CONTROL or due_ns is None or now < due_ns:
            return []
        is_relay = self.side is Side.RELAY
        self._farewell_due_ns = now + self.lease.heartbeat_ns if is_relay else None
        body = pack_text(self.reason)
        return [[self.control.head(Kind.END if is_relay else Kind.ENDED, now, len(body)), body]]

    def _end(self, reason: str, now: int) -> None:
        if self.side is Side.GATEWAY:
            self._over(reason)
        else:
            self.reason = reason
            self.state = State.ENDING
            self._farewell_due_ns = now

    def _over(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.state = State.OVER
        self._farewell_due_ns = None
