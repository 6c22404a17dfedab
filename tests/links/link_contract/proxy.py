"""A proxy between a link and its listener. A test controls the proxy."""

from __future__ import annotations

import select
import socket
import struct
import threading

from pto_transport_zmq.link.interface import split_address

_CHUNK = 1 << 16
_STEP_S = 0.02


class Proxy:
    """Forward TCP connections from :attr:`address` to ``target``, in a thread of its own.

    ``recorded`` contains the forwarded bytes of both directions, up to ``record_bytes``.
    """

    def __init__(self, target: str, record_bytes: int = 0) -> None:
        self.target = target
        self.recorded = bytearray()
        self._record_bytes = record_bytes
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._lock = threading.Lock()
        self._sides: dict[socket.socket, socket.socket] = {}
        self._is_closed = False
        self._thread = threading.Thread(target=self._forward, name="proxy")
        self._thread.start()

    def cut(self) -> None:
        """Reset all connections; bytes in transit are lost."""
        with self._lock:
            for side in self._sides:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.close()
            self._sides.clear()

    def close(self) -> None:
        """Cut all connections and end the thread; a second call does nothing."""
        self._is_closed = True
        self._thread.join()
        self.cut()
        self._server.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forward(self) -> None:
        while not self._is_closed:
            with self._lock:
                watched = [self._server, *self._sides]
            try:
                readable, _, _ = select.select(watched, [], [], _STEP_S)
            except (OSError, ValueError):
                continue  # cut() has closed a socket
            with self._lock:
                for ready in readable:
                    if ready is self._server:
                        self._accept()
                    elif ready in self._sides:
                        self._move(ready)

    def _accept(self) -> None:
        near, _ = self._server.accept()
        try:
            far = socket.create_connection(split_address(self.target), timeout=1.0)
        except OSError:
            near.close()
            return
        for side in (near, far):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sides[near], self._sides[far] = far, near

    def _move(self, side: socket.socket) -> None:
        """Forward one chunk. A full target blocks the proxy, like a full network, for up to 1 s."""
        other = self._sides[side]
        try:
            data = side.recv(_CHUNK)
            if data and len(self.recorded) < self._record_bytes:
                self.recorded += data
            other.settimeout(1.0)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (side, other):
                del self._sides[end]
                end.close()
