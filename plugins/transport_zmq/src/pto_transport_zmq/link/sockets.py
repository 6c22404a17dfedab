"""Open contexts and sockets with the options of a link, but not in a forked process.

Each end has a context of its own. So closing an end stops only its own threads, and the messages of
one end do not wait while another one encrypts.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

import zmq
from zmq.utils.garbage import gc as zero_copy

from pto_core.errors import LinkError
from pto_transport_zmq.link.interface import KeyPair, LinkLimits

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


def open_context(address: str) -> zmq.Context[Socket]:
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


def close_context(context: zmq.Context[Socket]) -> None:
    """Terminate a context whose sockets are closed; wait until their ``linger`` has passed."""
    context.term()
    _open.discard(context)
    if not _open:
        _end_zero_copy_thread()


def has_inherited() -> bool:
    """Return whether this process was forked from one that had open links."""
    return bool(_inherited)


def is_inherited(context: zmq.Context[Socket]) -> bool:
    """Return whether the context belongs to the process from which this one was forked."""
    return context in _inherited


def configure(socket: Socket, limits: LinkLimits, address: str) -> None:
    """Set the options that both sides share."""
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = limits.queue_messages
    socket.maxmsgsize = limits.part_bytes + _CURVE_BYTES
    socket.ipv6 = "[" in address
    socket.handshake_ivl = HANDSHAKE_MS
    socket.heartbeat_ivl = _HEARTBEAT_MS
    socket.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
    socket.heartbeat_ttl = _HEARTBEAT_TIMEOUT_MS


def configure_listener(socket: Socket, credentials: KeyPair | None) -> None:
    """Set the keys of a listener. Let a send that ZeroMQ would drop by default fail instead."""
    socket.router_mandatory = True
    socket.backlog = _BACKLOG
    if credentials is not None:
        socket.curve_server = True
        socket.curve_secretkey = credentials.secret.encode()
        socket.zap_domain = b"pto"


def configure_link(socket: Socket, credentials: KeyPair | None, server_key: str | None) -> None:
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
