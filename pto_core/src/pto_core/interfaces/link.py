"""The link interface: a link moves messages between hosts, and reports the key of the other side.

One side listens and serves many peers; the others dial. A complete link over TCP, in plain
Python::

    import select
    import socket
    import struct
    import time
    from collections import deque
    from collections.abc import Collection, Sequence
    from itertools import pairwise
    from pto_core.errors import LinkError, UnsupportedError
    from pto_core.interfaces import (
        API_VERSION,
        PARTS_LIMIT,
        Buffer,
        Health,
        KeyPair,
        LinkLimits,
        Message,
        Peer,
        Ready,
        check_message,
        require_loopback,
        split_address,
    )

    HEAD = struct.Struct("<4sI")  # a mark and the number of parts; the size of each part follows
    MARK = b"TCPL"
    STEP_S = 0.02

    class Stream:
        '''One connection. It sends and receives whole messages.'''

        def __init__(self, connection: socket.socket, peer: Peer, limits: LinkLimits) -> None:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection, self.peer, self.limits = connection, peer, limits
            self.received = bytearray()
            self.queue: deque[memoryview] = deque()
            self.is_open, self.was_full = True, False

        def send(self, parts: Sequence[Buffer]) -> bool:
            self.was_full = len(self.queue) >= self.limits.queue_messages
            if self.is_open and not self.was_full:
                sizes = struct.pack(f"<{len(parts)}I", *map(len, parts))
                message = b"".join([HEAD.pack(MARK, len(parts)), sizes, *parts])
                self.queue.append(memoryview(message))
                self.flush()
            return not self.was_full

        def flush(self) -> None:
            try:
                while self.queue:
                    rest = self.queue[0][self.connection.send(self.queue[0]) :]
                    self.queue.popleft()
                    if rest:
                        self.queue.appendleft(rest)
            except BlockingIOError:
                return
            except OSError:
                self.close()

        def receive(self) -> Message | None:
            if not self.fill():
                return None
            ends = self.ends()
            parts: list[Buffer] = [bytes(self.received[a:b]) for a, b in pairwise(ends)]
            del self.received[: ends[-1]]
            return Message(self.peer, parts)

        def fill(self) -> bool:
            '''Read until one message is complete, and no further, so that TCP slows the sender.'''
            while not self.ends() and self.is_open:
                try:
                    data = self.connection.recv(1 << 18)
                except BlockingIOError:
                    break
                except OSError:
                    data = b""
                if not data:
                    self.close()
                self.received += data
            return bool(self.ends())

        def ends(self) -> list[int]:
            '''Return the offset of the end of each part; [] until all parts have arrived.'''
            if len(self.received) < HEAD.size:
                return []
            mark, count = HEAD.unpack_from(self.received)
            ends = [HEAD.size + 4 * count]
            if mark != MARK or not 1 <= count <= PARTS_LIMIT:
                return self.refuse()
            if len(self.received) < ends[0]:
                return []
            for size in struct.unpack_from(f"<{count}I", self.received, HEAD.size):
                if size > self.limits.part_bytes:
                    return self.refuse()
                ends.append(ends[-1] + size)
            return ends if len(self.received) >= ends[-1] else []

        def refuse(self) -> list[int]:
            self.received.clear()
            self.close()
            return []

        def step(self) -> bool:
            '''Move bytes in both directions; return whether the caller may send or receive.'''
            self.flush()
            has_space = self.was_full and len(self.queue) < self.limits.queue_messages
            self.was_full = self.was_full and not has_space
            return self.fill() or has_space

        def close(self) -> None:
            self.is_open = False
            self.queue.clear()
            self.connection.close()

    class End:
        '''The common part of both ends: the streams, and the steps that wait() performs.'''

        def __init__(self, address: str, limits: LinkLimits) -> None:
            self.address, self.limits, self.is_closed = address, limits, False
            self.streams: dict[Peer, Stream] = {}

        def add(self, connection: socket.socket, number: int) -> None:
            peer = Peer(number.to_bytes(8, "big"), None)
            self.streams[peer] = Stream(connection, peer, self.limits)

        def connect(self) -> bool:
            '''Accept or dial; return whether this end dialled a new connection.'''
            return False

        def receive(self) -> Message | None:
            self.require_open()
            self.connect()
            for peer, stream in list(self.streams.items()):
                message = stream.receive()
                if message is not None:
                    self.streams[peer] = self.streams.pop(peer)  # the others have the next turn
                    return message
                if not stream.is_open:
                    del self.streams[peer]
            return None

        def step(self) -> bool:
            self.require_open()
            news = self.connect()
            moved = [stream.step() for stream in self.streams.values()]
            return news or any(moved)

        def polled(self) -> list[tuple[socket.socket, bool]]:
            open_ones = [stream for stream in self.streams.values() if stream.is_open]
            return [(stream.connection, bool(stream.queue)) for stream in open_ones]

        def require_open(self) -> None:
            if self.is_closed:
                raise LinkError(f"the link of {self.address} is closed", address=self.address)

        def close(self, linger_s: float = 0.0) -> None:
            until = time.monotonic() + linger_s
            while any(sending for _, sending in self.polled()) and time.monotonic() < until:
                self.step()
                time.sleep(STEP_S / 10)
            self.is_closed = True
            for stream in self.streams.values():
                stream.close()

    class TcpListener(End):
        '''The end that accepts connections. Each connection is a peer.'''

        def __init__(self, address: str, limits: LinkLimits) -> None:
            host, port = split_address(address)
            try:
                self.server = socket.create_server((host, port), backlog=128)
            except OSError as error:
                raise LinkError(f"cannot listen on {address}: {error}", address=address) from error
            self.server.setblocking(False)
            self.accepted = 0
            super().__init__(f"tcp://{host}:{self.server.getsockname()[1]}", limits)

        def allow(self, keys: Collection[str]) -> None:
            raise UnsupportedError("this link does not support keys", name="keys")

        def connect(self) -> bool:
            try:
                while True:
                    self.accepted += 1
                    self.add(self.server.accept()[0], self.accepted)
            except OSError:
                return False

        def polled(self) -> list[tuple[socket.socket, bool]]:
            return [(self.server, False), *super().polled()]

        def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
            self.require_open()
            check_message(parts, self.limits)
            stream = self.streams.get(peer)
            return stream is None or stream.send(parts)

        def close(self, linger_s: float = 0.0) -> None:
            super().close(linger_s)
            self.server.close()

    class TcpLink(End):
        '''The end that dials, and dials again after each cut.'''

        def __init__(self, address: str, limits: LinkLimits) -> None:
            self.host_and_port = split_address(address)
            self.connections, self.problem, self.next_s = 0, "", 0.0
            super().__init__(address, limits)

        @property
        def peer(self) -> Peer:
            return Peer(self.connections.to_bytes(8, "big"), None)

        def connect(self) -> bool:
            if any(stream.is_open for stream in self.streams.values()):
                return False
            if time.monotonic() < self.next_s:
                return False
            self.next_s = time.monotonic() + STEP_S
            try:
                connection = socket.create_connection(self.host_and_port, timeout=STEP_S)
            except OSError as error:
                self.problem = f"cannot connect to {self.address}: {error}"
                return False
            self.connections, self.problem = self.connections + 1, ""
            self.add(connection, self.connections)
            return True

        def send(self, parts: Sequence[Buffer]) -> bool:
            self.require_open()
            check_message(parts, self.limits)
            stream = self.streams.get(self.peer)
            return stream is not None and stream.is_open and stream.send(parts)

    class TcpLinks:
        name = "tcp"
        api_version = API_VERSION
        capabilities: frozenset[str] = frozenset()

        def health(self) -> Health:
            return Health(ok=True)

        def key_pair(self) -> KeyPair:
            raise UnsupportedError("this link does not support keys", name="keys")

        def listen(
            self,
            address: str,
            credentials: KeyPair | None = None,
            allowed: Collection[str] = (),
            *,
            limits: LinkLimits = LinkLimits(),
            insecure: bool = False,
        ) -> TcpListener:
            if credentials is not None:
                raise UnsupportedError("this link does not support keys", name="credentials")
            if not insecure:
                require_loopback(address)
            return TcpListener(address, limits)

        def dial(
            self,
            address: str,
            credentials: KeyPair | None = None,
            server_key: str | None = None,
            *,
            limits: LinkLimits = LinkLimits(),
            insecure: bool = False,
        ) -> TcpLink:
            if credentials is not None or server_key is not None:
                raise UnsupportedError("this link does not support keys", name="credentials")
            if not insecure:
                require_loopback(address)
            return TcpLink(address, limits)

        def wait(
            self,
            ends: Sequence[End],
            timeout_s: float | None = None,
            descriptors: Collection[int] = (),
        ) -> Ready:
            until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
            while True:
                ready = [end for end in ends if end.step()]
                rest_s = 0.0 if ready else min(until - time.monotonic(), STEP_S)
                poll = select.poll()
                for descriptor in descriptors:
                    poll.register(descriptor, select.POLLIN)
                for connection, sending in (each for end in ends for each in end.polled()):
                    poll.register(connection, select.POLLIN | select.POLLOUT * sending)
                found = {descriptor for descriptor, _ in poll.poll(max(rest_s, 0) * 1000)}
                readable = [descriptor for descriptor in descriptors if descriptor in found]
                if ready or readable or rest_s <= 0:
                    return Ready(ready, readable)

    plugin = TcpLinks()

with ``[project.entry-points."pto.links"] tcp = "pto_link_tcp:plugin"``.

A link is not reliable. While a connection lasts, messages arrive once, complete and in order. When
it is cut, messages in both directions may be lost, even those that ``send`` accepted. The side that
dialled connects again by itself and counts its connections; the listener sees a new :class:`Peer`
with the same key. The protocol above has numbers, acknowledgements and heartbeats, and transmits
lost messages again.

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
from pto_core.interfaces.plugin import Plugin

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


class Message(NamedTuple):
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
        """The number of connections since ``dial``; with keys, only those whose keys were verified.

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

    def receive(self) -> Message | None:
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

    def receive(self) -> Message | None:
        """Return the next message of any peer; peers that send have equal shares."""

    def close(self, linger_s: float = 0.0) -> None:
        """Release everything; see :meth:`Link.close`."""


@runtime_checkable
class LinkPlugin(Plugin, Protocol):
    """Opens links.

    Capabilities: ``encrypted``: messages are encrypted in transit. ``peer_keys``: each side proves
    that it has the secret of its public key before any of its messages is delivered.
    """

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
