"""A link over TCP, without keys: each connection carries messages in both directions."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Collection, Sequence
from itertools import pairwise

from pto_core.errors import LinkError, UnsupportedError
from pto_core.interfaces import Health
from pto_transport_zmq import LinkTransport
from pto_transport_zmq.link.interface import (
    PARTS_LIMIT,
    Buffer,
    KeyPair,
    LinkLimits,
    LinkMessage,
    Peer,
    Ready,
    check_message,
    require_loopback,
    split_address,
)

HEAD = struct.Struct("<4sI")  # the mark and the number of parts; the size of each part follows
MARK = b"TCPL"
STEP_S = 0.02


class Stream:
    """One connection. It sends and receives whole messages."""

    def __init__(self, connection: socket.socket, peer: Peer, limits: LinkLimits) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.peer, self.limits = connection, peer, limits
        self.received = bytearray()
        self.queue: deque[memoryview] = deque()
        self.is_open, self.was_full = True, False

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Queue one message; return False if there is no free space."""
        self.was_full = len(self.queue) >= self.limits.queue_messages
        if self.is_open and not self.was_full:
            sizes = struct.pack(f"<{len(parts)}I", *map(len, parts))
            message = b"".join([HEAD.pack(MARK, len(parts)), sizes, *parts])
            self.queue.append(memoryview(message))
            self.flush()
        return not self.was_full

    def flush(self) -> None:
        """Send as many bytes as the system accepts now."""
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

    def receive(self) -> LinkMessage | None:
        """Return the next complete message, or None."""
        if not self.fill():
            return None
        ends = self.ends()
        parts: list[Buffer] = [bytes(self.received[a:b]) for a, b in pairwise(ends)]
        del self.received[: ends[-1]]
        return LinkMessage(self.peer, parts)

    def fill(self) -> bool:
        """Read until one message is complete. Later bytes stay in TCP and slow down the sender."""
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
        """Return the offsets where parts of the next message begin or end; empty until complete."""
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
        """Cut the connection, because its peer broke the protocol or a limit."""
        self.received.clear()
        self.close()
        return []

    def step(self) -> bool:
        """Send and receive; return whether there is a message or new free space."""
        self.flush()
        has_space = self.was_full and len(self.queue) < self.limits.queue_messages
        self.was_full = self.was_full and not has_space
        return self.fill() or has_space

    def close(self) -> None:
        """Release the connection."""
        self.is_open = False
        self.queue.clear()
        self.connection.close()


class End:
    """The common part of both ends: their streams, and the steps of wait()."""

    def __init__(self, address: str, limits: LinkLimits) -> None:
        self.address, self.limits, self.is_closed = address, limits, False
        self.streams: dict[Peer, Stream] = {}

    def add(self, connection: socket.socket, number: int) -> None:
        """Add a stream under a number that no other stream of this end has."""
        peer = Peer(number.to_bytes(8, "big"), None)
        self.streams[peer] = Stream(connection, peer, self.limits)

    def connect(self) -> bool:
        """Accept or dial; return whether wait() must report the new connection."""
        return False

    def receive(self) -> LinkMessage | None:
        """Return the next message of any stream."""
        self.require_open()
        self.connect()
        for peer, stream in list(self.streams.items()):
            message = stream.receive()
            if message is not None:
                # the other streams come first next time
                self.streams[peer] = self.streams.pop(peer)
                return message
            if not stream.is_open:
                del self.streams[peer]
        return None

    def step(self) -> bool:
        """Send and receive on all streams; return whether wait() must report this end."""
        self.require_open()
        news = self.connect()
        moved = [stream.step() for stream in self.streams.values()]
        return news or any(moved)

    def polled(self) -> list[tuple[socket.socket, bool]]:
        """List the sockets that wait() polls, each with True if it has data to send."""
        open_ones = [stream for stream in self.streams.values() if stream.is_open]
        return [(stream.connection, bool(stream.queue)) for stream in open_ones]

    def require_open(self) -> None:
        """Raise LinkError if the end is closed."""
        if self.is_closed:
            raise LinkError(f"the link of {self.address} is closed", address=self.address)

    def close(self, linger_s: float = 0.0) -> None:
        """Send queued messages for at most ``linger_s``, then release everything."""
        until = time.monotonic() + linger_s
        while any(sending for _, sending in self.polled()) and time.monotonic() < until:
            self.step()
            time.sleep(STEP_S / 10)
        self.is_closed = True
        for stream in self.streams.values():
            stream.close()


class ListeningEnd(End):
    """The end that listens. Each connection that it accepts is a peer."""

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
        """Refuse keys."""
        raise UnsupportedError("this link does not support keys", name="keys")

    def connect(self) -> bool:
        """Accept new connections."""
        try:
            while True:
                self.accepted += 1
                self.add(self.server.accept()[0], self.accepted)
        except OSError:
            return False

    def polled(self) -> list[tuple[socket.socket, bool]]:
        """List the sockets that wait() polls, including the listening socket."""
        return [(self.server, False), *super().polled()]

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send to a peer. A message to a peer whose connection is closed is lost."""
        self.require_open()
        check_message(parts, self.limits)
        stream = self.streams.get(peer)
        return stream is None or stream.send(parts)

    def close(self, linger_s: float = 0.0) -> None:
        """Close all connections and the listening socket."""
        super().close(linger_s)
        self.server.close()


class DiallingEnd(End):
    """The end that dials, and dials again after a cut."""

    def __init__(self, address: str, limits: LinkLimits) -> None:
        self.host_and_port = split_address(address)
        self.connections, self.problem, self.next_s = 0, "", 0.0
        super().__init__(address, limits)

    @property
    def peer(self) -> Peer:
        """The listener."""
        return Peer(self.connections.to_bytes(8, "big"), None)

    def connect(self) -> bool:
        """Dial if there is no connection."""
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
        """Send if there is a connection; otherwise return False."""
        self.require_open()
        check_message(parts, self.limits)
        stream = self.streams.get(self.peer)
        return stream is not None and stream.is_open and stream.send(parts)


class TcpLinks:
    """The links of the transport ``tcp``."""

    name = "tcp"
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return whether the link works on this machine."""
        return Health(ok=True)

    def key_pair(self) -> KeyPair:
        """Refuse keys."""
        raise UnsupportedError("this link does not support keys", name="keys")

    def listen(
        self,
        address: str,
        credentials: KeyPair | None = None,
        allowed: Collection[str] = (),
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it cannot be changed
        insecure: bool = False,
    ) -> ListeningEnd:
        """Return an end that listens; the address must be local unless ``insecure``."""
        if credentials is not None:
            raise UnsupportedError("this link does not support keys", name="credentials")
        if not insecure:
            require_loopback(address)
        return ListeningEnd(address, limits)

    def dial(
        self,
        address: str,
        credentials: KeyPair | None = None,
        server_key: str | None = None,
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it cannot be changed
        insecure: bool = False,
    ) -> DiallingEnd:
        """Return an end that dials; the address must be local unless ``insecure``."""
        if credentials is not None or server_key is not None:
            raise UnsupportedError("this link does not support keys", name="credentials")
        if not insecure:
            require_loopback(address)
        return DiallingEnd(address, limits)

    def wait(
        self,
        ends: Sequence[End],
        timeout_s: float | None = None,
        descriptors: Collection[int] = (),
    ) -> Ready:
        """Send and receive until an end has news or free space, or a descriptor is readable."""
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


plugin = LinkTransport(TcpLinks())
