"""Figures of the link ``zmq`` compared with bare pyzmq, with and without CURVE.

The other side is a separate process on this machine, over TCP. The bare side uses two DEALER
sockets; the link listens with a ROUTER socket, and also waits for descriptors.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import zmq

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile
from pto_transport_zmq.link.interface import (
    KeyPair,
    Link,
    LinkLimits,
    LinkMessage,
    Listener,
)
from pto_transport_zmq.link.loading import load_links

CHUNK = 1 << 20
CHUNKS = 256
TRIPS = 1000
LIMITS = LinkLimits(queue_messages=16, part_bytes=CHUNK)
LOCAL = "tcp://127.0.0.1:0"
plugin = load_links("zmq")


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure round trips and bulk transfers of the link and of bare pyzmq, alternately."""
    trips, chunks = effort.size(TRIPS), effort.size(CHUNKS)
    for is_secure, suffix in ((False, "without keys"), (True, "with CURVE")):
        taken = interleaved(
            {
                "link trip": partial(_link, is_secure, trips, 0),
                "bare trip": partial(bare, is_secure, trips, 0),
                "link bulk": partial(_link, is_secure, 0, chunks),
                "bare bulk": partial(bare, is_secure, 0, chunks),
            },
            effort.repeats,
        )
        yield Figure(
            f"link, round trip of 64 bytes, {suffix}",
            "us",
            taken["link trip"],
            peer_name=f"bare pyzmq, {suffix}",
            peer=taken["bare trip"],
        )
        yield Figure(
            f"link, bulk of 1 MiB into touched memory, {suffix}",
            "GB/s",
            taken["link bulk"],
            peer_name=f"bare pyzmq, {suffix}",
            peer=taken["bare bulk"],
        )


@contextmanager
def _beside(body: Callable[[int], None]) -> Iterator[str]:
    """Run ``body`` in a child process; yield the address that ``body`` writes to a pipe."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            body(write)
        finally:
            os._exit(0)
    os.close(write)
    try:
        yield os.read(read, 100).decode()
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _link(is_secure: bool, trips: int, chunks: int) -> float:
    server, client = (plugin.key_pair() if is_secure else None for _ in range(2))

    def serve(write: int) -> None:
        allowed = [client.public] if client else []
        listener = plugin.listen(LOCAL, server, allowed, limits=LIMITS)
        os.write(write, listener.address.encode())
        target = memoryview(bytearray(CHUNK))
        while True:
            message = _next(listener)
            if len(message.parts) == 1:
                listener.send(message.peer, message.parts)
            else:
                target[:] = message.parts[1]

    with _beside(serve) as address:
        key = server.public if server else None
        link = plugin.dial(address, client, key, limits=LIMITS)

        def send(parts: list[bytes | memoryview]) -> None:
            while not link.send(parts):
                plugin.wait([link], 1.0)

        def trip() -> None:
            send([bytes(64)])
            _next(link)

        try:
            return _measure(send, trip, trips, chunks)
        finally:
            link.close()


def _next(end: Link | Listener) -> LinkMessage:
    while (message := end.receive()) is None:
        plugin.wait([end])
    return message


def bare(is_secure: bool, trips: int, chunks: int) -> float:
    """Return the median of bare round trips in us, or the rate of bare chunks in GB/s."""
    server, client = (plugin.key_pair() if is_secure else None for _ in range(2))

    def serve(write: int) -> None:
        socket = _socket()
        if server:
            socket.curve_server, socket.curve_secretkey = True, server.secret.encode()
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        os.write(write, f"tcp://127.0.0.1:{port}".encode())
        target = memoryview(bytearray(CHUNK))
        while True:
            head = socket.recv()
            if not socket.getsockopt(zmq.RCVMORE):
                socket.send(head)
            else:
                target[:] = socket.recv(copy=False).buffer

    with _beside(serve) as address:
        socket = _socket()
        if server and client:
            _set_keys(socket, client, server)
        socket.connect(address)

        def send(parts: list[bytes | memoryview]) -> None:
            socket.send_multipart(parts, copy=False)

        def trip() -> None:
            socket.send(bytes(64))
            socket.recv()

        try:
            return _measure(send, trip, trips, chunks)
        finally:
            socket.close()
            socket.context.term()


def _socket() -> zmq.Socket[bytes]:
    socket = zmq.Context().socket(zmq.DEALER)
    socket.linger, socket.sndhwm, socket.rcvhwm = 0, LIMITS.queue_messages, LIMITS.queue_messages
    return socket


def _set_keys(socket: zmq.Socket[bytes], client: KeyPair, server: KeyPair) -> None:
    socket.curve_publickey, socket.curve_secretkey = client.public.encode(), client.secret.encode()
    socket.curve_serverkey = server.public.encode()


def _measure(
    send: Callable[[list[bytes | memoryview]], None],
    trip: Callable[[], None],
    trips: int,
    chunks: int,
) -> float:
    """Return the median round-trip time in us, or the throughput of the chunks in GB/s."""
    trip()  # the first round trip connects the sides
    if trips:
        times = []
        for _ in range(trips):
            start = time.perf_counter()
            trip()
            times.append((time.perf_counter() - start) * 1e6)
        return percentile(times, 0.5)
    data = memoryview(bytearray(os.urandom(CHUNK)))
    for _ in range(4):
        send([b"head", data])
    trip()
    start = time.perf_counter()
    for _ in range(chunks):
        send([b"head", data])
    trip()
    return chunks * CHUNK / (time.perf_counter() - start) / 1e9
