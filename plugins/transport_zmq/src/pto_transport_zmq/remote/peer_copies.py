"""Copies of buffers between two hosts. The bytes do not pass through the parent's host.

The gateway of the target listens for one peer, whose public key and random token come from the
parent. The gateway of the source dials it. Between them is a session like that between relay and
gateway, with the token as its name. So a copy survives cuts within the lease, and a token is valid
once. The source has the role of the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pto_core.errors import CapacityError, LinkError, ProtocolError, PtoError
from pto_core.worker.failures import Failure
from pto_transport_zmq.link.interface import (
    KeyPair,
    Link,
    Links,
    split_address,
)
from pto_transport_zmq.remote.address_space import AddressSpace, Range, pieces_of
from pto_transport_zmq.remote.memory import Push
from pto_transport_zmq.remote.messages import MessageKind, pack_content, unpack_content
from pto_transport_zmq.remote.requests import AnyReply, to_refusal, to_reply
from pto_transport_zmq.remote.session import (
    AcceptedSession,
    DialledSession,
    Identity,
    RemoteSession,
    SessionState,
    Side,
)
from pto_transport_zmq.remote.wire import Part

COPIES_MAX = 32
_EPOCH = 1
_FREED = "its buffer was freed"
_CANCELLED = "the program has cancelled it"

Reply = Callable[[AnyReply], None]


@dataclass(frozen=True)
class PeerLinks:
    """How a gateway reaches other gateways: its link, address, keys and identity."""

    plugin: Links
    bind: str
    credentials: KeyPair | None
    identity: Identity
    is_insecure: bool


@dataclass(frozen=True)
class PeerCopy:
    """The data that both hosts of a copy need. ``place``: the range on the host with the record.

    ``lease_ns``: of the session between the two hosts. ``key``: the public key of the other host.
    """

    place: Range
    token: bytes
    lease_ns: int
    key: str | None


class PeerCopies:
    """The copies of one gateway from and to other hosts. One thread; no call blocks.

    ``space``: the mapped addresses for buffers.
    """

    def __init__(self, links: PeerLinks, space: AddressSpace) -> None:
        self._links = links
        self._space = space
        self._copies: list[_Incoming | _Outgoing] = []

    @property
    def ends(self) -> list[Any]:
        """The ends of links to wait for."""
        return [end for copy in self._copies for end in copy.ends]

    def receive(self, copy: PeerCopy, now: int) -> int:
        """Listen for the content of a range; return the port."""
        self._check_count()
        links = self._links
        session = self._session(Side.GATEWAY, copy, now)
        keys: Collection[str] = () if copy.key is None else (copy.key,)
        listener = links.plugin.listen(
            links.bind, links.credentials, keys, insecure=links.is_insecure
        )
        end = AcceptedSession(links.plugin, listener, session)
        self._copies.append(
            _Incoming(session, end, [listener], copy.place, self._space, copy.token)
        )
        return split_address(listener.address)[1]

    def send(self, copy: PeerCopy, address: str, now: int, reply: Reply) -> None:
        """Send the content of a range to another gateway; ``reply`` gets the result."""
        self._check_count()
        session = self._session(Side.RELAY, copy, now)
        links, dialled = self._links, []
        for _ in range(2):  # one link for each channel
            dialled.append(
                links.plugin.dial(address, links.credentials, copy.key, insecure=links.is_insecure)
            )
        end = DialledSession(links.plugin, dialled, session)
        self._copies.append(
            _Outgoing(session, end, dialled, copy.place, self._space, address, reply)
        )

    def _session(self, side: Side, copy: PeerCopy, now: int) -> RemoteSession:
        identity = replace(self._links.identity, lease_ns=copy.lease_ns)
        return RemoteSession(side, identity, copy.token, _EPOCH, now)

    def _check_count(self) -> None:
        if len(self._copies) >= COPIES_MAX:
            raise CapacityError(
                f"the session has {COPIES_MAX} copies with other hosts at once; wait for one of "
                "them",
                name="copies",
                value=len(self._copies) + 1,
                limit=COPIES_MAX,
            )

    def step(self, now: int) -> None:
        """Move all content that can move now, and end the copies that are complete."""
        for copy in list(self._copies):
            copy.step(now)
            if copy.is_over(now):
                copy.close(now)
                self._copies.remove(copy)

    def free(self, place: Range, now: int) -> None:
        """End the copies from and to a range, because its buffer is freed."""
        for copy in self._copies:
            if copy.place.overlaps(place):
                copy.session.close(_FREED, now)

    def cancel(self, token: bytes, now: int) -> None:
        """End the copy with this token to this host, if there is one: it writes nothing more."""
        for copy in self._copies:
            if isinstance(copy, _Incoming) and copy.token == token:
                copy.session.close(_CANCELLED, now)

    def close(self, now: int) -> None:
        """End all copies."""
        for copy in self._copies:
            copy.session.close("the session of a gateway is over", now)
            copy.close(now)
        self._copies.clear()


@dataclass
class _Incoming:
    """The target of a copy."""

    session: RemoteSession
    end: AcceptedSession
    ends: Sequence[Any]
    place: Range
    space: AddressSpace
    token: bytes
    arrived: int = 0

    def step(self, now: int) -> None:
        """Write the pieces that have arrived, and confirm the last piece."""
        try:
            for message in self.end.receive(now):
                if message.kind == MessageKind.BUFFER:
                    self._write(message.body)
                elif message.kind == MessageKind.SENT and self.arrived == self.place.nbytes:
                    self.session.send(MessageKind.RECEIVED, [b""])
                else:
                    raise ProtocolError(f"the source of a copy sent the wrong kind {message.kind}")
        except PtoError as error:
            self.session.close(str(error), now)
        self.end.flush(now)

    def is_over(self, now: int) -> bool:
        """Return whether the source has ended the copy, or cannot be reached any more."""
        return self.session.advance(now) is SessionState.OVER

    def close(self, now: int) -> None:
        """Report the end to the source."""
        self.session.confirm_end(now)
        self.end.flush(now)
        self.end.close()

    def _write(self, body: Sequence[Part]) -> None:
        _, (piece, content) = unpack_content(body)
        if piece.start != self.arrived or piece.end > self.place.nbytes:
            raise ProtocolError(f"the source of a copy sent {piece.nbytes} bytes at a wrong offset")
        start = self.place.start + self.arrived
        self.space.memory(Range(start, start + piece.nbytes))[:] = content
        self.arrived = piece.end
        self.session.consumed(1)


@dataclass
class _Outgoing:
    """The source of a copy. Its messages state offsets in the range."""

    session: RemoteSession
    end: DialledSession
    ends: Sequence[Link]
    place: Range
    space: AddressSpace
    address: str
    reply: Reply | None
    """Called once with the result; None afterwards."""

    def __post_init__(self) -> None:
        self._pieces: Iterator[Range] = pieces_of(self.place)
        self._piece: Range | None = next(self._pieces, None)
        self._last = 0
        self._is_announced = False

    def step(self, now: int) -> None:
        """Send pieces, and report the result to the parent when it is known."""
        try:
            if any(message.kind == MessageKind.RECEIVED for message in self.end.receive(now)):
                self._report(to_reply(None))
                self.session.close("the copy is complete", now)
        except PtoError as error:
            self.session.close(str(error), now)
        self._send()
        self.end.flush(now)
        if self.session.advance(now) >= SessionState.ENDING:
            self._report(to_refusal(Failure.of(self._error())))

    def is_over(self, now: int) -> bool:
        """Return whether the target has received the end, or cannot be reached any more."""
        return self.session.advance(now) is SessionState.OVER

    def close(self, now: int) -> None:
        """Close the links."""
        self.end.flush(now)
        self.end.close()

    def _report(self, result: AnyReply) -> None:
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(result)

    def _error(self) -> LinkError:
        problem = next((one.problem for one in self.ends if one.problem), "")
        reasons = "; ".join(filter(None, (self.session.reason, problem)))
        return LinkError(
            f"the copy to the host at {self.address} failed: {reasons}; hosts must reach each "
            "other at the addresses with which the parent reaches them",
            address=self.address,
        )

    def _send(self) -> None:
        while self._piece is not None:
            content = self.space.memory(self._piece)
            start = self._piece.start - self.place.start
            body = pack_content(0, Push(Range(start, start + len(content)), content))
            sent = self.session.send_bulk(MessageKind.BUFFER, body)
            if sent is None:
                return
            self._last, self._piece = sent, next(self._pieces, None)
        if not self._is_announced:
            sent = self.session.send(MessageKind.SENT, [b""], self._last)
            self._is_announced = sent is not None
