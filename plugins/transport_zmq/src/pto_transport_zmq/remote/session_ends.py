"""A session over two connections: the relay has two links, and the gateway has a listener."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from pto_core.errors import ProtocolError
from pto_transport_zmq.link.interface import (
    Link,
    Links,
    Listener,
    Peer,
)
from pto_transport_zmq.remote.inbox import Message
from pto_transport_zmq.remote.session import RemoteSession
from pto_transport_zmq.remote.wire import ChannelNumber, Part, unpack

_BURST = 16  # the most messages of one channel before the other channel is served
_CHANNELS = (ChannelNumber.CONTROL, ChannelNumber.BULK)


class SessionEnd(Protocol):
    """One side of a session with its connections. One thread; only ``wait`` blocks."""

    def receive(self, now: int) -> list[Message]:
        """Return the messages that are delivered now; raise ProtocolError.

        Reads only those connections that the last :meth:`wait` reported.
        """

    def flush(self, now: int) -> None:
        """Transmit the pending messages of the session, as far as there is free space."""

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
