"""The link interface: a link moves messages between hosts, and reports the key of the other side.

One side listens and serves many peers; the others dial::

    link = dial(address, keys, server_key)               listener = listen(address, keys, allowed)
    link.send(parts) ───► queue ══ connection ══► queue ───► listener.receive(): peer, parts
    link.receive() ◄───── queue ◄═ connection ═══ queue ◄─── listener.send(peer, parts)
    wait([link], timeout_s, descriptors)                 wait([listener], timeout_s, descriptors)

A link is not reliable. While a connection lasts, messages arrive once, complete and in order. When
it is cut, messages in both directions may be lost, even those that ``send`` accepted. The side that
dialled connects again by itself and counts its connections; the listener sees a new :class:`Peer`
with the same key. The session protocol above it has numbers, acknowledgements and heartbeats, and
transmits lost messages again.

One thread at a time uses an end. No call blocks, except ``wait`` and ``close`` for the times that
the caller states. An end belongs to the process that opened it: a forked child cannot use it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pto_core.errors import UsageError
from pto_core.interfaces import Health

PARTS_LIMIT = 64
"""The largest number of parts of a message."""

Buffer = bytes | bytearray | memoryview
"""A part of a message. A memoryview is contiguous and has the format ``B``."""

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True)
class KeyPair:
    """The keys of one side, as text. Each plugin has its own form; the core does not read it."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class LinkLimits:
    """The limits of one end.

    ``queue_messages``: the number of messages that wait in a queue. Each connection has a queue for
    each direction, on both sides. ``part_bytes``: the largest part. A side that receives a larger
    part cuts the connection before it allocates memory for the part.
    """

    queue_messages: int = 64
    part_bytes: int = 2 << 20


class Peer(NamedTuple):
    """The other side of one connection.

    ``connection`` is unique among the connections of an end. ``key`` is the public key, which the
    link has verified; None without keys.
    """

    connection: bytes
    key: str | None


class LinkMessage(NamedTuple):
    """A received message and its sender.

    The parts belong to the receiver. A large part is a view of memory that the link allocated for
    this message, so the receiver copies the part only once, to its destination:
    ``place[:] = message.parts[1]``.
    """

    peer: Peer
    parts: Sequence[Buffer]


class Ready(NamedTuple):
    """The ends that may send or receive, and the readable descriptors, in the caller's order."""

    ends: list[Any]
    descriptors: list[int]


@runtime_checkable
class Link(Protocol):
    """The end that dialled. It has one connection at a time, and dials again after each cut."""

    @property
    def peer(self) -> Peer:
        """The listener. Its ``key`` is the ``server_key`` that was passed to ``dial``."""

    @property
    def connections(self) -> int:
        """The number of connections since ``dial``; with keys, only connections with verified keys.

        A higher number than before means that the connection was cut, and that messages may be
        lost.
        """

    @property
    def problem(self) -> str:
        """The reason why there is no connection; empty if there is one, or no reason is known."""

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Accept one message; return False if there is no free space or no connection.

        Never blocks. A link may send from the memory of large parts without a copy. So their bytes
        must not change until the protocol above the link has received the acknowledgement of the
        message, or the link is closed. Raises :class:`~pto_core.errors.UsageError` as
        :func:`check_message` does.
        """

    def receive(self) -> LinkMessage | None:
        """Return the next message, or None if none has arrived completely. Never blocks."""

    def close(self, linger_s: float = 0.0) -> None:
        """Release everything; may be called twice.

        Accepted messages that are not sent after ``linger_s`` seconds are lost. Every later call
        raises :class:`~pto_core.errors.LinkError`.
        """


@runtime_checkable
class Listener(Protocol):
    """The end that listens. Each message names its peer; peers have their own queues.

    The listener reports a new peer with the first message of that peer. Messages of an earlier
    connection with the same key may still arrive after the first messages of a later connection.
    """

    @property
    def address(self) -> str:
        """The address for ``dial``, with the chosen port if the given one was 0."""

    def allow(self, keys: Collection[str]) -> None:
        """Replace the set of public keys that may connect; this also affects existing connections.

        Messages of peers with other keys are dropped from then on.
        """

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Accept one message for ``peer``; return False if the peer's queue has no free space.

        Returns True for a peer whose connection is cut: the message is lost. See :meth:`Link.send`.
        """

    def receive(self) -> LinkMessage | None:
        """Return the next message of any peer; peers that send have equal shares."""

    def close(self, linger_s: float = 0.0) -> None:
        """Release everything; see :meth:`Link.close`."""


@runtime_checkable
class Links(Protocol):
    """Opens links, for :class:`pto_transport_zmq.LinkTransport`.

    Capabilities: ``encrypted``: messages are encrypted in transit. ``peer_keys``: each side proves
    that it has the secret of its public key before any of its messages is delivered.
    """

    @property
    def name(self) -> str:
        """The name of the transport; keys are valid for transports of this name only."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities."""

    def health(self) -> Health:
        """Return whether the links are usable on this machine, within 1 s. Never raises."""

    def key_pair(self) -> KeyPair:
        """Return new keys.

        Raises :class:`~pto_core.errors.UnsupportedError` in a plugin without ``peer_keys``.
        """

    def listen(
        self,
        address: str,
        credentials: KeyPair | None = None,
        allowed: Collection[str] = (),
        *,
        limits: LinkLimits = ...,
        insecure: bool = False,
    ) -> Listener:
        """Listen on ``address``; with ``credentials`` only the public keys ``allowed`` may connect.

        Port 0 chooses a free port. Without credentials, every program that reaches the address may
        send. So this method then raises :class:`~pto_core.errors.UsageError` for an address that
        other machines can reach, unless ``insecure`` is true. Raises
        :class:`~pto_core.errors.LinkError` if the address cannot be used.
        """

    def dial(
        self,
        address: str,
        credentials: KeyPair | None = None,
        server_key: str | None = None,
        *,
        limits: LinkLimits = ...,
        insecure: bool = False,
    ) -> Link:
        """Connect in the background to the listener with the public key ``server_key``.

        Returns at once, even if nothing listens there yet. Without ``credentials`` and
        ``server_key`` the rule of :meth:`listen` for addresses holds.
        """

    def wait(
        self,
        ends: Sequence[Any],
        timeout_s: float | None = None,
        descriptors: Collection[int] = (),
    ) -> Ready:
        """Wait until an end may continue or one of the ``descriptors`` is readable.

        An end may continue if a message has arrived, if free space appeared after a ``send`` that
        returned False, or if the number of connections grew. A link may also report an end without
        such a reason; ``receive`` then returns None, and a repeated ``send`` returns False. All
        ``ends`` must belong to this plugin. The ends do their work, such as the exchange of keys,
        in this call, so the program must call it repeatedly. ``timeout_s``: None means no limit, 0
        returns at once. A descriptor that is closed, or whose other side has closed, counts as
        readable.
        """


def with_port(address: str, port: int) -> str:
    """Return an address of the same host with another port."""
    host, _ = split_address(address)
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def check_message(parts: Sequence[Buffer], limits: LinkLimits) -> None:
    """Raise :class:`~pto_core.errors.UsageError` for a message that a link must not send.

    A plugin calls it in ``send``.
    """
    if not 0 < len(parts) <= PARTS_LIMIT:
        raise UsageError(
            f"a message of {len(parts)} parts cannot be sent; it needs 1 to {PARTS_LIMIT} parts",
            name="parts",
            value=len(parts),
        )
    for number, part in enumerate(parts):
        if len(part) > limits.part_bytes:
            raise UsageError(
                f"part {number} of a message has {len(part)} bytes, the limit of this link is "
                f"{limits.part_bytes}; divide it, or use LinkLimits(part_bytes=...) on both sides",
                name="parts",
                value=len(part),
                expected=limits.part_bytes,
            )


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``tcp://HOST:PORT``; an IPv6 address is returned without brackets.

    Raises :class:`~pto_core.errors.UsageError` for another form.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise UsageError(
            f"{address!r} is not a link address; expected tcp://HOST:PORT, such as "
            "tcp://host1:7700 or tcp://[::1]:7700",
            name="address",
            value=address,
            expected="tcp://HOST:PORT",
        )
    return match[1].strip("[]"), int(match[2])


def require_loopback(address: str) -> None:
    """Raise :class:`~pto_core.errors.UsageError` unless only this machine can reach ``address``.

    A plugin calls it for a link without keys if ``insecure`` is false.
    """
    host, _ = split_address(address)
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        raise UsageError(
            f"a link at {address} without keys would be open to every program that reaches this "
            "address; use keys or 127.0.0.1, or permit it: `pto agent serve --insecure`, setting "
            "remote_insecure of a Worker, insecure=True of a link",
            name="address",
            value=address,
        )
