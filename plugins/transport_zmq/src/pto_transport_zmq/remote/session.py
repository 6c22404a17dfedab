"""One side of a session between a relay and a gateway: greetings, lease, two channels, and the end.

The session, its greetings and its channels are a state machine: no socket, thread or clock; times
are arguments, in nanoseconds of one clock that never goes back (see
:mod:`pto_transport_zmq.remote.lease`). At the end of the file, ``DialledSession`` and
``AcceptedSession`` run it over two connections.

| state | meaning |
| --- | --- |
| ``CONNECTING`` | no greeting was exchanged yet in at least one channel |
| ``OPEN`` | both channels carry messages; a connection may be cut within the lease |
| ``ENDING`` | relay only: nothing more is delivered; the gateway may still run |
| ``OVER`` | nothing more is delivered; at the relay: the gateway's processes have ended |

::

    relay                                              gateway
    HELLO  (once per heartbeat) ─────────────────────►  compare identity, session, epoch
       ◄─────────────────────────────────────────────  WELCOME, or REFUSED with the reason
    message 1, 2, 3 ══ CONTROL ══ or ══ BULK ════════►  delivered in order, acknowledged in heads
       ◄──────── cut: HELLO again, then what the ────  REPLAY: "I have messages up to 2"
                 other side does not have
    END ─────────────────────────────────────────────►  OVER: ends its processes
       ◄─────────────────────────────────────────────  ENDED: no process of the session is left

Invariants, whatever the link loses and whenever it is cut:

- The layers above receive each message once, and in the order of its channel.
- A gateway that has heard nothing for its lease is OVER before the relay gives up, so two epochs of
  a session never run at the same time.
- A relay is OVER only if no process of the session can be left on the other host.

A session never returns to an earlier state. The owner of a gateway that is ``OVER`` ends its
processes and then calls :meth:`RemoteSession.confirm_end`. The relay becomes ``OVER`` with that
confirmation, or when the gateway's lease and the time to end its processes have passed.
"""

from __future__ import annotations

import re
import resource
import struct
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from typing import Any, Final, Protocol

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.link.interface import (
    Link,
    Links,
    Listener,
    Peer,
)
from pto_transport_zmq.remote.lease import LONGEST_NS, SECOND, SHORTEST_NS, Lease
from pto_transport_zmq.remote.wire import (
    FIRST_FREE_KIND,
    MAGIC,
    SESSION_BYTES,
    VERSION,
    Channel,
    ChannelNumber,
    Head,
    Kind,
    Message,
    Part,
    pack_head,
    pack_text,
    unpack,
    unpack_text,
    version_of,
)

# ---- the identity of each side, exchanged in HELLO and WELCOME ----
#
# Two sides work together only if their identities match. Each mismatch is named, with both values.

_GREETING = struct.Struct("<IxxBxQ32s")
GREETING_BYTES: Final = _GREETING.size
_LITTLE, _BIG = 1, 2
_BYTE_ORDERS: Final = {_LITTLE: "little", _BIG: "big"}
_CORE_VERSION = re.compile(r"[0-9A-Za-z.+_!-]{1,32}")
_LARGEST_PAGE: Final = 1 << 30


class Side(Enum):
    """The sides of a session."""

    RELAY = "the parent's host"
    GATEWAY = "the remote host"

    @property
    def peer(self) -> Side:
        """The other side."""
        return Side.GATEWAY if self is Side.RELAY else Side.RELAY


@dataclass(frozen=True)
class Identity:
    """The properties in which both hosts must match."""

    core_version: str
    """The version of ptorun-core."""
    lease_ns: int
    page_bytes: int
    byte_order: str
    """``little`` or ``big``."""

    def __post_init__(self) -> None:
        if not _CORE_VERSION.fullmatch(self.core_version):
            raise UsageError(f"{self.core_version!r} is not a version of at most 32 characters")

    @classmethod
    def of_this_process(cls, core_version: str, lease_ns: int) -> Identity:
        """Return the identity of this process."""
        return cls(
            core_version=core_version,
            lease_ns=lease_ns,
            page_bytes=resource.getpagesize(),
            byte_order=sys.byteorder,
        )

    def pack(self) -> bytes:
        """Return the body of HELLO and WELCOME."""
        return _GREETING.pack(
            self.page_bytes,
            _LITTLE if self.byte_order == "little" else _BIG,
            self.lease_ns,
            self.core_version.encode("ascii"),
        )

    @classmethod
    def unpack(cls, body: Sequence[Part]) -> Identity:
        """Parse the body of HELLO or WELCOME. Raises ``ProtocolError`` if it is invalid."""
        packed = b"".join(body)
        if len(packed) != GREETING_BYTES:
            raise ProtocolError(
                f"a greeting has a body of {len(packed)} bytes; {GREETING_BYTES} are required"
            )
        page_bytes, order, lease_ns, padded = _GREETING.unpack(packed)
        version = padded.rstrip(b"\0").decode("latin-1")
        _require("page size", page_bytes, is_valid=0 < page_bytes <= _LARGEST_PAGE)
        _require("byte order", order, is_valid=order in _BYTE_ORDERS)
        _require("lease", lease_ns, is_valid=SHORTEST_NS <= lease_ns <= LONGEST_NS)
        _require("core version", version, is_valid=bool(_CORE_VERSION.fullmatch(version)))
        return cls(
            core_version=version,
            lease_ns=lease_ns,
            page_bytes=page_bytes,
            byte_order=_BYTE_ORDERS[order],
        )


def check_build(*, parent: str, host: str) -> None:
    """Raise ``UsageError`` unless both hosts have the same build."""
    if parent == host:
        return
    is_same_version = parent.partition("+")[0] == host.partition("+")[0]
    raise UsageError(
        f"the parent's host has ptorun-core {parent}, this host {host}; "
        + (
            "the version is the same, but the code differs: install both from the same commit"
            if is_same_version
            else "install the same version on both"
        ),
        name="core_version",
    )


def mismatches(relay: Identity, gateway: Identity) -> list[str]:
    """Describe each property in which the two sides do not match, with both values."""
    compared = (
        ("core_version", "version of ptorun-core", "Install the same version on both hosts."),
        ("byte_order", "byte order", "Use hosts of the same byte order."),
        ("page_bytes", "page size in bytes", "Use kernels with the same page size."),
        ("lease_ns", "lease in nanoseconds", "Use the same lease on both hosts."),
    )
    return [
        f"{_mismatch(name, getattr(relay, member), getattr(gateway, member))} {advice}"
        for member, name, advice in compared
        if getattr(relay, member) != getattr(gateway, member)
    ]


def other_version(side: Side, peer_version: int) -> str:
    """Return the error text for a peer with another protocol version."""
    pair = (VERSION, peer_version) if side is Side.RELAY else (peer_version, VERSION)
    return (
        _mismatch("protocol version", *pair)
        + " Install the same version of ptorun-core on both hosts."
    )


def other_session(epochs: tuple[int, int] | None) -> str:
    """Return the error text for a HELLO of another session, or of another epoch."""
    if epochs is None:
        return "The session differs: the gateway at this address serves another session."
    return _mismatch("epoch of the session", *epochs) + " Only the newest epoch may connect."


def _mismatch(name: str, relay: object, gateway: object) -> str:
    return f"The {name} differs: {relay} on {Side.RELAY.value}, {gateway} on {Side.GATEWAY.value}."


def _require(name: str, value: object, *, is_valid: bool) -> None:
    if not is_valid:
        raise ProtocolError(f"a greeting has the invalid {name} {value!r}")


# ---- the greetings of one side ----
#
# A relay sends HELLO in each channel of a new connection, once per heartbeat, until WELCOME
# arrives. A gateway answers each HELLO, with WELCOME if the sides match and otherwise with REFUSED.


class Greetings:
    """The greetings that one side of a session has to send."""

    def __init__(self, side: Side, identity: Identity, session: bytes, epoch: int) -> None:
        self.peer: Identity | None = None
        """The identity of the other side, after its first greeting that matched."""
        self._side = side
        self._identity = identity
        self._body = identity.pack()
        self._session = session
        self._epoch = epoch
        # relay: time of the next HELLO by channel, until WELCOME arrives
        self._hello_due_ns: dict[int, int] = {}
        self._welcome_due: set[int] = set()  # gateway: channels
        # by channel: session, epoch and text
        self._refusals: dict[int, tuple[bytes, int, str]] = {}
        self._established: set[int] = set()

    @property
    def is_complete(self) -> bool:
        """Whether the sides have greeted each other in all channels."""
        return len(self._established) == len(ChannelNumber)

    @property
    def is_pending(self) -> bool:
        """Whether a greeting or a refusal has to be sent, now or later."""
        return bool(self._hello_due_ns or self._welcome_due or self._refusals)

    @property
    def deadline_ns(self) -> int | None:
        """The time of the next HELLO, or None."""
        return min(self._hello_due_ns.values(), default=None)

    def is_established(self, channel: int) -> bool:
        """Return whether the sides have greeted each other in a channel, on any connection."""
        return channel in self._established

    def connect(self, channel: int, now: int) -> None:
        """Send HELLO until WELCOME arrives."""
        self._hello_due_ns[channel] = now

    def due(self, channel: int, now: int, heartbeat_ns: int) -> tuple[Kind, bytes] | None:
        """Return kind and body of the HELLO or WELCOME to send now, if there is one."""
        if channel in self._welcome_due:
            self._welcome_due.remove(channel)
            return Kind.WELCOME, self._body
        due_ns = self._hello_due_ns.get(channel)
        if due_ns is not None and due_ns <= now:
            self._hello_due_ns[channel] = now + heartbeat_ns
            return Kind.HELLO, self._body
        return None

    def refusal(self, channel: int, now: int) -> list[Part] | None:
        """Return the REFUSED message to send now, if there is one.

        Its head names the session and epoch of the HELLO that it answers.
        """
        refused = self._refusals.pop(channel, None)
        if refused is None:
            return None
        session, epoch, text = refused
        body = pack_text(text)
        head = pack_head(
            *(MAGIC, VERSION, Kind.REFUSED, session, epoch, channel, 0, 0, 0, 0, now, 0, len(body))
        )
        return [head, body]

    def hello(self, head: Head, body: list[Part]) -> bool:
        """Handle a HELLO of this session at the gateway; return whether it is welcome."""
        peer = Identity.unpack(body)
        found = mismatches(relay=peer, gateway=self._identity)
        if found:
            self._refuse(head, " ".join(found))
            return False
        self.peer = peer
        self._established.add(head.channel)
        self._welcome_due.add(head.channel)
        return True

    def welcome(self, head: Head, body: list[Part]) -> bool:
        """Handle a WELCOME at the relay; return whether the channel may transmit from now on.

        Raises ``ProtocolError`` with a message for the user if the sides do not match.
        """
        peer = Identity.unpack(body)
        found = mismatches(relay=self._identity, gateway=peer)
        if found:
            raise ProtocolError(" ".join(found))
        self.peer = peer
        if self._hello_due_ns.pop(head.channel, None) is None:
            return False  # a duplicate
        self._established.add(head.channel)
        return True

    def refuse_session(self, head: Head) -> None:
        """Refuse a HELLO of another session or epoch."""
        is_same = head.session == self._session
        epochs = (head.epoch, self._epoch) if is_same else None
        self._refuse(head, other_session(epochs))

    def refuse_version(self, channel: int, version: int) -> None:
        """Refuse a message of another protocol version."""
        text = other_version(self._side, version)
        self._refusals[channel] = (self._session, self._epoch, text)

    def _refuse(self, head: Head, text: str) -> None:
        self._refusals[head.channel] = (head.session, head.epoch, text)


# ---- the session ----

CONTROL: Final = ChannelNumber.CONTROL
BULK: Final = ChannelNumber.BULK
MAX_EPOCH: Final = 0xFFFF_FFFF
_LIMIT: Final = 4096
_HEARTBEAT: Final = int(Kind.HEARTBEAT)
_REPLAY: Final = int(Kind.REPLAY)


class SessionState(IntEnum):
    """The states of a session, in their order."""

    CONNECTING = 0
    OPEN = 1
    ENDING = 2
    OVER = 3


_ENDING: Final = SessionState.ENDING  # constants, because access to a member of an enum is slow
_OVER: Final = SessionState.OVER


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
        self.state = SessionState.CONNECTING
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
        """Greet on a new connection, including the first. A gateway waits for the greeting.

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

    def advance(self, now: int) -> SessionState:
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
        if self.advance(now) < SessionState.ENDING:
            self._end(reason, now)

    def confirm_end(self, now: int) -> None:
        """Confirm that all processes of the gateway have ended.

        At the gateway, call this when the session is over and its processes have ended; the relay
        is informed. At the relay, call this for a confirmation that arrived outside the session.
        """
        if self.side is Side.RELAY:
            self._over("the remote host has ended the session")
        elif self.advance(now) is SessionState.OVER:
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
        if self.state is SessionState.CONNECTING and self._greetings.is_complete:
            self.state = SessionState.OPEN

    def _received_after_end(self, message: Sequence[Part], now: int) -> None:
        """Answer a relay that has not received the end, or accept the confirmation of a gateway."""
        if self.side is Side.GATEWAY:
            if self._is_confirmed:
                self._farewell_due_ns = now
        elif self.state is SessionState.ENDING:
            try:
                head = unpack(message)
            except ProtocolError:
                return
            is_ours = head.session == self._session and head.epoch == self._epoch
            if is_ours and head.kind == Kind.ENDED:
                self._over("")

    def _refuses_version(self, channel: int, message: Sequence[Part]) -> bool:
        """Refuse a greeting of another protocol version; return whether it was refused."""
        version = version_of(message)
        is_greeting = self.side is Side.GATEWAY and self.state is SessionState.CONNECTING
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
            self.state = SessionState.ENDING
            self._farewell_due_ns = now

    def _over(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.state = SessionState.OVER
        self._farewell_due_ns = None


# ---- a session over two connections: the relay has two links, the gateway a listener ----

_BURST = 16  # the maximum number of messages of a channel before the other channel is served
_CHANNELS = (CONTROL, BULK)


class SessionEnd(Protocol):
    """One side of a session with its connections. One thread; only ``wait`` blocks."""

    def receive(self, now: int) -> list[Message]:
        """Return the messages that are delivered now; raise ProtocolError.

        Reads only those connections that the last :meth:`wait` reported.
        """

    def flush(self, now: int) -> None:
        """Transmit the pending messages of the session until the link has no free space."""

    def wait(
        self, timeout_s: float, descriptors: Collection[int], others: Sequence[Any] = ()
    ) -> list[int]:
        """Wait for messages, space or a descriptor; return the readable descriptors.

        ``others``: further ends of links of the same plugin to wait for.
        """

    def close(self) -> None:
        """Close the connections."""


class DialledSession:
    """The relay's side. It has one connection for each channel."""

    def __init__(self, plugin: Links, links: Sequence[Link], session: RemoteSession) -> None:
        self._plugin = plugin
        self._links = dict(zip(_CHANNELS, links, strict=True))
        self._session = session
        self._connections = dict.fromkeys(_CHANNELS, 0)
        self._cut: set[ChannelNumber] = set()
        self._unsent: dict[ChannelNumber, deque[list[Part]]] = {one: deque() for one in _CHANNELS}
        self._ready: list[Link] = list(links)

    def receive(self, now: int) -> list[Message]:
        """See :class:`SessionEnd`."""
        delivered: list[Message] = []
        for channel, link in self._links.items():
            if link.connections > self._connections[channel]:
                self._connections[channel] = link.connections
                self._cut.discard(channel)
                self._unsent[channel].clear()
                self._session.reconnected(channel, now)
            if link.problem:
                self._cut.add(channel)
            if link not in self._ready:
                continue
            for _ in range(_BURST):
                message = link.receive()
                if message is None:
                    break
                arrived = self._session.received(channel, message.parts, now)
                delivered += arrived
                # Such a control message is a batch and takes long to handle, so stop after one.
                # Heartbeats are read without this limit: otherwise they would queue up.
                if arrived and channel is ChannelNumber.CONTROL:
                    break
        return delivered

    @property
    def is_cut(self) -> bool:
        """Whether a connection was cut and is not restored."""
        return bool(self._cut)

    def flush(self, now: int) -> None:
        """See :class:`SessionEnd`."""
        for channel, link in self._links.items():
            _flush(self._session, channel, self._unsent[channel], link.send, now)

    def wait(
        self, timeout_s: float, descriptors: Collection[int], others: Sequence[Any] = ()
    ) -> list[int]:
        """See :class:`SessionEnd`."""
        ready = self._plugin.wait([*self._links.values(), *others], timeout_s, descriptors)
        self._ready = ready.ends
        return ready.descriptors

    def close(self) -> None:
        """See :class:`SessionEnd`."""
        for link in self._links.values():
            link.close(linger_s=0.2)


class AcceptedSession:
    """The gateway's side. Each channel uses the connection of its newest greeting."""

    def __init__(self, plugin: Links, listener: Listener, session: RemoteSession) -> None:
        self._plugin = plugin
        self._listener = listener
        self._session = session
        self._peers: dict[ChannelNumber, Peer] = {}
        self._unsent: dict[ChannelNumber, deque[list[Part]]] = {one: deque() for one in _CHANNELS}
        self._is_ready = True

    def receive(self, now: int) -> list[Message]:
        """See :class:`SessionEnd`."""
        delivered: list[Message] = []
        if not self._is_ready:
            return delivered
        for _ in range(_BURST):
            message = self._listener.receive()
            if message is None:
                break
            try:
                channel = ChannelNumber(unpack(message.parts).channel)
            except (ProtocolError, ValueError):
                # an invalid message, which the session answers or ignores
                channel = ChannelNumber.CONTROL
            if self._peers.get(channel) != message.peer:
                self._peers[channel] = message.peer
                self._unsent[channel].clear()
            arrived = self._session.received(channel, message.parts, now)
            delivered += arrived
            if arrived and channel is ChannelNumber.CONTROL:
                break
        return delivered

    def flush(self, now: int) -> None:
        """See :class:`SessionEnd`."""
        for channel, peer in self._peers.items():
            send = partial(self._listener.send, peer)
            _flush(self._session, channel, self._unsent[channel], send, now)

    def wait(
        self, timeout_s: float, descriptors: Collection[int], others: Sequence[Any] = ()
    ) -> list[int]:
        """See :class:`SessionEnd`."""
        ready = self._plugin.wait([self._listener, *others], timeout_s, descriptors)
        self._is_ready = self._listener in ready.ends
        return ready.descriptors

    def close(self) -> None:
        """See :class:`SessionEnd`."""
        self._listener.close(linger_s=0.2)


def _flush(
    session: RemoteSession,
    channel: ChannelNumber,
    unsent: deque[list[Part]],
    send: Callable[[list[Part]], bool],
    now: int,
) -> None:
    """Transmit the messages of a channel until ``send`` has no space; keep the rest."""
    while True:
        if not unsent:
            unsent += session.outgoing(channel, now, _BURST)
        if not unsent or not send(unsent[0]):
            return
        unsent.popleft()
