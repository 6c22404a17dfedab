"""The two ends of a link: the listener, and the link that connects to it.

The I/O thread of ZeroMQ leaves commands for a socket: a message arrived, space appeared, a
connection ended. It then makes a descriptor of the socket readable. Any call to the socket may
process the commands; the descriptor is then no longer readable. So ``wait`` reads the state of a
socket before it sleeps. An end whose message was refused checks the descriptor before each other
call, because this call may process the command that reports space.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket as resolver
import sys
import time
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import zmq
from zmq.utils.garbage import gc as zero_copy

from pto_core import log
from pto_core.errors import LinkError
from pto_transport_zmq.link import keys
from pto_transport_zmq.link.interface import (
    PARTS_LIMIT,
    Buffer,
    KeyPair,
    LinkLimits,
    LinkMessage,
    Peer,
    Ready,
    check_message,
    split_address,
)

# ---- contexts and sockets, with the options of a link ----
#
# Each end has a context of its own. So closing an end stops only its own threads, and the messages
# of an end do not wait while another end encrypts.

HANDSHAKE_MS = 5000
"""A connection whose handshake takes longer is closed."""
_HEARTBEAT_MS = 1000
_HEARTBEAT_TIMEOUT_MS = 5000
_RECONNECT_MS = 20
_RECONNECT_MAX_MS = 500
_CONNECT_TIMEOUT_MS = 3000
_BACKLOG = 1024
_CURVE_BYTES = 64  # bytes that encryption adds to a part, rounded up
_RELEASE_S = 1.0

Socket = zmq.Socket[bytes]

_open: weakref.WeakSet[zmq.Context[Any]] = weakref.WeakSet()
_inherited: list[object] = []
"""The contexts of the process from which this one was forked; they must never be used or freed."""


def _open_context(address: str) -> zmq.Context[Socket]:
    """Return a new context. Raises :class:`~pto_core.errors.LinkError` after a fork."""
    if _inherited:
        raise LinkError(
            f"the link of {address} cannot be opened: this process was forked from one that had "
            "open links, and ZeroMQ does not survive a fork; start this process with spawn, or "
            "fork before the first link is opened",
            address=address,
        )
    context: zmq.Context[Socket] = zmq.Context()
    _open.add(context)
    return context


def _close_context(context: zmq.Context[Socket]) -> None:
    """Terminate a context whose sockets are closed; wait until their ``linger`` has passed."""
    context.term()
    _open.discard(context)
    if not _open:
        _end_zero_copy_thread()


def _configure(socket: Socket, limits: LinkLimits, address: str) -> None:
    """Set the options that both sides share."""
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = limits.queue_messages
    socket.maxmsgsize = limits.part_bytes + _CURVE_BYTES
    socket.ipv6 = "[" in address
    socket.handshake_ivl = HANDSHAKE_MS
    socket.heartbeat_ivl = _HEARTBEAT_MS
    socket.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
    socket.heartbeat_ttl = _HEARTBEAT_TIMEOUT_MS


def _configure_listener(socket: Socket, credentials: KeyPair | None) -> None:
    """Set the keys of a listener. Make ZeroMQ report messages that it would drop by default."""
    socket.router_mandatory = True
    socket.backlog = _BACKLOG
    if credentials is not None:
        socket.curve_server = True
        socket.curve_secretkey = credentials.secret.encode()
        socket.zap_domain = b"pto"


def _configure_link(socket: Socket, credentials: KeyPair | None, server_key: str | None) -> None:
    """Set the keys of a link and short intervals between attempts to reconnect.

    The option ``immediate`` stays off: with it, ZeroMQ would drop received messages when their
    connection ends.
    """
    socket.reconnect_ivl = _RECONNECT_MS
    socket.reconnect_ivl_max = _RECONNECT_MAX_MS
    socket.connect_timeout = _CONNECT_TIMEOUT_MS
    if credentials is not None and server_key is not None:
        socket.curve_publickey = credentials.public.encode()
        socket.curve_secretkey = credentials.secret.encode()
        socket.curve_serverkey = server_key.encode()


def _end_zero_copy_thread() -> None:
    """End the thread in which pyzmq releases buffers that were sent without a copy.

    pyzmq starts it again for the next such message. The thread continues while another user of
    pyzmq has such buffers.
    """
    until = time.monotonic() + _RELEASE_S
    while zero_copy.refs and time.monotonic() < until:
        time.sleep(0.001)
    if not zero_copy.refs:
        zero_copy.stop()


def _after_fork() -> None:
    _inherited.extend(_open)


os.register_at_fork(after_in_child=_after_fork)


_VIEW_BYTES = 1 << 16
"""Parts of at least this size are not copied: a received part is a view of ZeroMQ's memory."""
_KEY_OF_SENDER = "User-Id"
# The values as int: pyzmq converts an enum at each call, which takes longer than the call itself.
_DONT_WAIT = int(zmq.DONTWAIT)
_DONT_WAIT_MORE = int(zmq.DONTWAIT | zmq.SNDMORE)
_STATE = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
_EVENTS = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.DISCONNECTED
    | zmq.Event.CLOSED
)
_PROBLEMS = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "{address} does not allow the key {key}; add it to the keys "
    "that the listener allows",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "{address} speaks another protocol, or one side uses keys "
    "and the other does not; check the address, and use keys on both sides or on none",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "{address} closed the connection during the handshake; "
    "the server key may be wrong, or the listener uses no keys",
    zmq.Event.DISCONNECTED: "the connection to {address} was cut; the link dials again",
    zmq.Event.CLOSED: "nothing listens at {address}; start the listener, or check the address",
}
# After one of these events, ZeroMQ does not dial again by itself.
_FINAL = (zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.HANDSHAKE_FAILED_PROTOCOL)
_REDIAL_S = 0.3


class LinkEnd:
    """The base of both ends: a socket, a second socket for events, and their context."""

    def __init__(self, address: str, kind: int, limits: LinkLimits) -> None:
        self._limits = limits
        self._address = address
        self._context = _open_context(address)
        self._socket = self._context.socket(kind)
        _configure(self._socket, limits, address)
        self._side: Socket | None = None
        self.side_descriptor: int | None = None
        self._is_closed = False
        self._was_refused = self._has_space = self._has_news = False
        # Whether a complete message can be received. False stays valid until the descriptor becomes
        # readable. None: unknown, because the socket was used since its state was read.
        self._is_readable: bool | None = None
        self.redial_s = math.inf
        self.descriptor = _descriptor(self._socket)
        self._commands = poller((self.descriptor,))
        self._poller: tuple[tuple[int, ...], select.poll] = ((), select.poll())

    def serve_side(self) -> None:
        """Handle all events that have arrived at the second socket.

        The descriptor of that socket reports further events only after this call. So each end also
        calls it when it opens.
        """

    def poller(self, numbers: tuple[int, ...]) -> select.poll:
        """Return a poll object for these descriptors; the result of the last call is cached."""
        if self._poller[0] != numbers:
            self._poller = numbers, poller(numbers)
        return self._poller[1]

    def is_ready(self) -> bool:
        """Return whether a message, free space or news is available; reset the last two."""
        self.require_open()
        self._note_commands()
        ready = self._has_message() or self._has_space or self._has_news
        if self._has_space:
            self._was_refused = self._has_space = False
        self._has_news = False
        return ready

    def require_open(self) -> None:
        """Raise ``LinkError`` if the end is closed or belongs to another process."""
        if not (self._is_closed or _inherited):
            return
        if self._is_closed:
            raise LinkError(
                f"the link of {self._address} is closed; open another one", address=self._address
            )
        if self._context in _inherited:
            raise LinkError(
                f"the link of {self._address} belongs to the process from which this one was "
                "forked; use it there, or open a link in a process that was spawned",
                address=self._address,
            )

    def close(self, linger_s: float = 0.0) -> None:
        """Release everything; see :class:`~pto_core.interfaces.Link`."""
        if self._is_closed or self._context in _inherited:
            return
        self._is_closed = True
        if self._side is not None:
            self._socket.disable_monitor()
            self._side.close(linger=0)
        self._socket.close(linger=int(linger_s * 1000))
        _close_context(self._context)

    def _has_message(self) -> bool:
        """Process the commands of the I/O thread; return whether a complete message has arrived."""
        is_outdated = self._is_readable is None
        if is_outdated or (not self._is_readable and self._commands.poll(0)):
            self._is_readable = bool(int(self._socket.getsockopt(_STATE)) & _READABLE)
        return bool(self._is_readable)

    def _note_commands(self) -> None:
        """Record a report of free space before another call to the socket consumes it."""
        if self._was_refused and not self._has_space:
            self._has_space = bool(self._commands.poll(0))

    def _send(self, parts: Sequence[Buffer]) -> bool:
        """Send all parts of one message. Only the first part can be refused for lack of space."""
        self._is_readable = self._is_readable or None
        last = len(parts) - 1
        try:
            for number, part in enumerate(parts):
                is_copied = len(part) < _VIEW_BYTES
                flags = _DONT_WAIT if number == last else _DONT_WAIT_MORE
                self._socket.send(part, flags, copy=is_copied)
        except zmq.Again:
            return self._refused()
        return True

    def _refused(self) -> bool:
        self._was_refused, self._has_space = True, False
        return False

    def _receive(self) -> list[zmq.Frame] | None:
        """Return the parts of the next message. ZeroMQ never delivers a part of a message."""
        self.require_open()
        self._note_commands()
        if not self._has_message():  # cheaper than the exception of recv
            return None
        self._is_readable = None
        try:
            frame = self._socket.recv(_DONT_WAIT, copy=False)
        except zmq.Again:  # the connection of the message has ended
            return None
        frames = [frame]
        while frame.more:
            frame = self._socket.recv(_DONT_WAIT, copy=False)
            # Do not keep more parts, because the caller drops a message with so many.
            if len(frames) > PARTS_LIMIT + 1:
                frames.pop()
            frames.append(frame)
        return frames

    def _is_in_limits(self, parts: Sequence[zmq.Frame]) -> bool:
        largest = max(map(len, parts), default=0)
        return 0 < len(parts) <= PARTS_LIMIT and largest <= self._limits.part_bytes


class ZmqListener(LinkEnd):
    """A ROUTER socket. With keys, a second socket answers libzmq's questions about them (ZAP)."""

    def __init__(
        self,
        address: str,
        credentials: KeyPair | None,
        allowed: Collection[str],
        limits: LinkLimits,
    ) -> None:
        super().__init__(address, zmq.ROUTER, limits)
        self._allowed = frozenset(allowed)
        self._has_keys = credentials is not None
        self._rare = log.RareWarnings(__name__)
        try:
            _configure_listener(self._socket, credentials)
            if self._has_keys:
                self._side = self._context.socket(zmq.REP)
                self._side.linger = 0
                self.side_descriptor = _descriptor(self._side)
                self._side.bind("inproc://zeromq.zap.01")
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise LinkError(
                f"cannot listen on {address}: {error}; choose a free port and an address of this "
                "machine",
                address=address,
            ) from error
        self._address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.serve_side()

    @property
    def address(self) -> str:
        """The bound address, with its port."""
        return self._address

    def allow(self, keys_allowed: Collection[str]) -> None:
        """Replace the allowed keys. From now on, drop messages from peers with other keys."""
        self.require_open()
        keys.check_allowed(keys_allowed)
        self._allowed = frozenset(keys_allowed)

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send to one connection. A message to a connection that is gone is lost."""
        self.require_open()
        check_message(parts, self._limits)
        self._note_commands()
        self._is_readable = self._is_readable or None
        try:
            self._socket.send(peer.connection, _DONT_WAIT_MORE)
        except zmq.Again:
            return self._refused()
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return True
            raise
        return self._send(parts)

    def receive(self) -> LinkMessage | None:
        """Return the next message of a peer whose key is allowed now."""
        while (frames := self._receive()) is not None:
            connection, *parts = frames
            key = str(connection.get(_KEY_OF_SENDER)) if self._has_keys else None
            if not (key is None or key in self._allowed):
                self._rare.add("message with a key that is not allowed any more", key=key)
            elif not self._is_in_limits(parts):
                self._rare.add("message beyond the limits", key=key, parts=len(parts))
            else:
                return LinkMessage(Peer(connection.bytes, key), _contents(parts))
        self._rare.write()
        return None

    def serve_side(self) -> None:
        """Answer libzmq, which asks whether the keys of new connections are allowed."""
        while self._side is not None:
            try:
                request = self._side.recv_multipart(_DONT_WAIT)
            except zmq.Again:
                return
            self._side.send_multipart(self._verdict(request))

    def _verdict(self, request: list[bytes]) -> list[bytes]:
        version, number, *_, mechanism, credentials = request
        key = keys.from_bytes(credentials) if mechanism == b"CURVE" else ""
        code = b"200" if key in self._allowed else b"400"
        if code != b"200":
            self._rare.add("refused key", key=key or "none", mechanism=mechanism.decode("latin-1"))
        return [version, number, code, b"", key.encode(), b""]


class ZmqLink(LinkEnd):
    """A DEALER socket. A second socket monitors its connections."""

    def __init__(
        self,
        address: str,
        credentials: KeyPair | None,
        server_key: str | None,
        limits: LinkLimits,
    ) -> None:
        super().__init__(address, zmq.DEALER, limits)
        self._peer = Peer(b"", server_key)
        self._key = credentials.public if credentials else ""
        self._connections, self._problem = 0, ""
        self._is_connected = self._is_refused = self._is_name_checked = False
        _configure_link(self._socket, credentials, server_key)
        self._side = self._socket.get_monitor_socket(int(_EVENTS))
        self.side_descriptor = _descriptor(self._side)
        self._events = poller((self.side_descriptor,))
        self._dial()
        self.serve_side()

    @property
    def peer(self) -> Peer:
        """The listener."""
        return self._peer

    @property
    def connections(self) -> int:
        """The number of completed connections."""
        self.require_open()
        self._serve_arrived()
        return self._connections

    @property
    def problem(self) -> str:
        """The reason why there is no connection; empty while there is one."""
        self.require_open()
        self._serve_arrived()
        # ZeroMQ tries again in silence while it cannot resolve the name.
        if not (self._is_connected or self._problem or self._is_name_checked):
            self._is_name_checked = True
            self._problem = _unknown_name(self._address)
        return self._problem

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Send a message. Return False without a connection, or if there is no space."""
        self.require_open()
        check_message(parts, self._limits)
        self._note_commands()
        return self._is_connected and self._send(parts)

    def receive(self) -> LinkMessage | None:
        """Return the next message."""
        while (frames := self._receive()) is not None:
            if self._is_in_limits(frames):
                return LinkMessage(self._peer, _contents(frames))
        return None

    def serve_side(self) -> None:
        """Handle connection events: count connections, or record why there is none."""
        while self._side is not None:
            try:
                head, _ = self._side.recv_multipart(_DONT_WAIT)
            except zmq.Again:
                return
            # As zmq.utils.monitor decodes it; that module imports asyncio, which takes long.
            self._handle(zmq.Event(int.from_bytes(head[:2], sys.byteorder)))

    def is_ready(self) -> bool:
        """Dial again if the delay is over; then answer as the base class does."""
        if self.redial_s < math.inf and time.monotonic() >= self.redial_s:
            self._dial()
        return super().is_ready()

    def _serve_arrived(self) -> None:
        if self._events.poll(0):
            self.serve_side()

    def _handle(self, event: zmq.Event) -> None:
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._connections, self._problem = self._connections + 1, ""
            self._is_connected = self._has_news = True
        elif event in _PROBLEMS:
            self._is_connected, self._has_news = False, True
            is_end = event in (zmq.Event.DISCONNECTED, zmq.Event.CLOSED)
            # Keep the reason of a failed handshake, which is more specific.
            if not (is_end and self._is_refused):
                self._problem = _PROBLEMS[event].format(address=self._address, key=self._key)
            self._is_refused = not is_end
        if event in _FINAL:
            self.redial_s = time.monotonic() + _REDIAL_S

    def _dial(self) -> None:
        self.redial_s = math.inf
        self._is_readable = None
        with contextlib.suppress(zmq.ZMQError):  # raised if there is no connection
            self._socket.disconnect(self._address)
        try:
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise LinkError(
                f"cannot connect to {self._address}: {error}; check the address",
                address=self._address,
            ) from error


def poller(numbers: Collection[int]) -> select.poll:
    """Return a poll object that reports which of these descriptors are readable."""
    made = select.poll()
    for number in numbers:
        made.register(number, select.POLLIN)
    return made


def _unknown_name(address: str) -> str:
    """Return the problem if the host of an address has a name that does not resolve, or ""."""
    host, _ = split_address(address)
    try:
        resolver.getaddrinfo(host, None)
    except resolver.gaierror as error:
        return f"the name {host} in {address} is unknown ({error.strerror}); check its spelling"
    return ""


def _descriptor(socket: Socket) -> int:
    return int(socket.getsockopt(zmq.FD))


def _contents(frames: list[zmq.Frame]) -> list[Buffer]:
    return [frame.buffer if len(frame) >= _VIEW_BYTES else frame.bytes for frame in frames]


def wait(ends: Sequence[LinkEnd], timeout_s: float | None, descriptors: Collection[int]) -> Ready:
    """Return the ends with a message, free space or news, and the readable descriptors."""
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    numbers = [*descriptors]
    for end in ends:
        end.require_open()
        numbers.append(end.descriptor)
        if end.side_descriptor is not None:
            numbers.append(end.side_descriptor)
    poll = ends[0].poller(tuple(numbers)) if ends else poller(numbers)
    while True:
        ready = [end for end in ends if end.is_ready()]
        rest_s = 0.0 if ready else min([until, *(end.redial_s for end in ends)]) - time.monotonic()
        found = [number for number, _ in poll.poll(_milliseconds(rest_s))]
        changed = [end for end in ends if end.descriptor in found or end.side_descriptor in found]
        for end in changed:
            if end.side_descriptor in found:
                end.serve_side()
        if not ready:
            ready = [end for end in changed if end.is_ready()]
        readable = [descriptor for descriptor in descriptors if descriptor in found]
        if ready or readable or time.monotonic() >= until:
            return Ready(ready, readable)


def _milliseconds(rest_s: float) -> int | None:
    """Return milliseconds for ``poll``, rounded up so that the last wait is not a busy loop."""
    return None if rest_s == math.inf else math.ceil(max(rest_s, 0.0) * 1000)
