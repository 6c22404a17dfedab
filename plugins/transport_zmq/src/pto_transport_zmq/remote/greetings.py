"""The greetings of one side: which HELLO, WELCOME or REFUSED each channel has to send.

A relay sends HELLO in each channel of a new connection, once per heartbeat, until WELCOME arrives.
A gateway answers each HELLO, with WELCOME if the sides match and otherwise with REFUSED.
"""

from __future__ import annotations

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.handshake import (
    Identity,
    Side,
    mismatches,
    other_session,
    other_version,
)
from pto_transport_zmq.remote.wire import (
    MAGIC,
    VERSION,
    ChannelNumber,
    Head,
    Kind,
    Part,
    pack_head,
    pack_text,
)


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
