"""A network between relays and agents that a test controls: TCP proxies in a separate process.

The link ``networked`` is the link zmq, but each ``dial`` asks the network for a proxy of its
address. The proxies know the boundaries of ZeroMQ's messages, so that a fault can hit one exact
message. Without keys, a message is one message of the protocol. With keys, each part counts as a
message.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pto_transport_zmq.link import ZmqLinks
from pto_transport_zmq.link.ends import ZmqLink
from pto_transport_zmq.link.interface import split_address

NAME = "networked"
VARIABLE = "PTO_TEST_NETWORK"
MODULE = """
from network import NetworkedLinks
from pto_transport_zmq import LinkTransport

plugin = LinkTransport(NetworkedLinks())
"""
GREETING_BYTES = 64  # the greeting of ZMTP 3; https://rfc.zeromq.org/spec/23/
MORE, LONG, COMMAND = 1, 2, 4  # flags of a ZMTP frame
CHUNK_BYTES = 1 << 18
QUEUE_BYTES = 1 << 22
DELAY_S = 0.1


class NetworkedLinks(ZmqLinks):
    """The link zmq through the proxies of a network."""

    name = NAME

    def dial(self, address: str, *keys: Any, **options: Any) -> ZmqLink:
        """Dial a proxy of the address."""
        place = os.environ[VARIABLE]
        return super().dial(ask(place, do="route", target=address)["address"], *keys, **options)


def ask(place: str, **request: Any) -> dict[str, Any]:
    """Send a request to the process of the proxies; return its reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect(place)
        control.send(json.dumps(request).encode())
        reply: dict[str, Any] = json.loads(control.recv(1 << 16))
        return reply


@dataclass(frozen=True)
class Network:
    """Controls the network in a test. ``folder`` has the recorded bytes of each connection."""

    place: str
    folder: Path

    def stall(self, is_stalled: bool = True) -> None:
        """Forward nothing. Connections stay open, as when the network behind them is down."""
        ask(self.place, do="stall", on=is_stalled)

    def cut(self) -> None:
        """Reset all connections; bytes in transit are lost."""
        ask(self.place, do="cut")

    def fault_at(self, message: int, kind: str) -> None:
        """Apply a fault to one message. The next message has the number 1.

        ``kind``: ``reset`` resets the connection instead of forwarding the message, ``cut``
        forwards it and closes the connection, ``delay`` holds it and all later messages,
        ``duplicate`` forwards it twice.
        """
        ask(self.place, do="fault", message=message, kind=kind)

    def weaken(self, is_weak: bool = True) -> None:
        """Replace CURVE by NULL in greetings, so that each side seems to have no keys."""
        ask(self.place, do="weaken", on=is_weak)

    def counts(self) -> dict[str, int]:
        """Return the numbers of messages, of bytes in each direction, and of applied faults."""
        return ask(self.place, do="counts")

    def recorded(self, direction: str = "*") -> list[bytes]:
        """Return the bytes of each connection ``to_host`` or ``to_parent``."""
        return [one.read_bytes() for one in sorted(self.folder.glob(f"*.{direction}"))]


@contextmanager
def running_network(folder: Path, *, records: bool = False) -> Iterator[Network]:
    """Start the process of the proxies, and stop it at the end."""
    folder.mkdir(parents=True)
    place = str(folder / "control")
    command = [sys.executable, __file__, place, str(int(records))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield Network(place, folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass(eq=False)
class _Stream:
    """One direction of a connection. ``arrived``: incomplete messages; ``ready``: to be sent."""

    source: socket.socket
    target: socket.socket
    direction: str
    file: Path | None
    arrived: bytearray = field(default_factory=bytearray)
    ready: bytearray = field(default_factory=bytearray)
    greeting_left: int = GREETING_BYTES
    held_until: float = 0.0

    def units(self) -> Iterator[tuple[bytes, bool]]:
        """Yield each complete piece of the stream, and whether it is a message."""
        if self.greeting_left and self.arrived:
            greeting = self._remove(min(self.greeting_left, len(self.arrived)))
            self.greeting_left -= len(greeting)
            yield greeting, False
        while not self.greeting_left and (found := self._complete()) is not None:
            size, is_command = found
            yield self._remove(size), not is_command

    def _complete(self) -> tuple[int, bool] | None:
        """Return size and kind of the first unit; None if it has not arrived completely."""
        at, flags = 0, MORE
        while flags & MORE:
            head = self.arrived[at : at + 9]
            if len(head) < 2 or (head[0] & LONG and len(head) < 9):
                return None
            flags = head[0]
            at += 9 + int.from_bytes(head[1:9], "big") if flags & LONG else 2 + head[1]
            if at > len(self.arrived):
                return None
        return at, bool(flags & COMMAND)

    def _remove(self, size: int) -> bytes:
        unit = bytes(self.arrived[:size])
        del self.arrived[:size]
        return unit


class _Proxies:
    """All proxies, in one thread."""

    def __init__(self, place: str, *, records: bool) -> None:
        self._folder = Path(place).parent if records else None
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.bind(place)
        self._control.listen(64)
        self._routes: dict[str, socket.socket] = {}
        self._streams: list[_Stream] = []
        self._opened = 0
        self._is_stalled = self._is_weak = False
        self._faults: dict[int, str] = {}
        self._messages = 0
        self._counts = {"messages": 0, "to_host": 0, "to_parent": 0, "faults": 0}

    def run(self) -> None:
        while True:
            listeners = {one: target for target, one in self._routes.items()}
            now = time.monotonic()
            moving = [] if self._is_stalled else [s for s in self._streams if s.held_until <= now]
            sources = {s.source: s for s in moving if len(s.ready) < QUEUE_BYTES}
            targets = {s.target: s for s in moving if s.ready}
            has_held = len(moving) < len(self._streams) and not self._is_stalled
            readable, writable, _ = select.select(
                [self._control, *listeners, *sources], list(targets), [], 0.005 if has_held else 1.0
            )
            for one in writable:
                self._send(targets[one])
            for one in readable:
                if one is self._control:
                    self._answer()
                elif one in listeners:
                    self._accept(one, listeners[one])
                elif sources[one] in self._streams:
                    self._receive(sources[one])

    def _answer(self) -> None:
        control, _ = self._control.accept()
        with control, contextlib.suppress(OSError):  # the process that asked may have been killed
            request = control.recv(1 << 16)
            if request:
                control.send(json.dumps(self._perform(**json.loads(request))).encode())

    def _perform(self, do: str, **given: Any) -> dict[str, Any]:
        if do == "route":
            return {"address": self._route(given["target"])}
        if do == "stall":
            self._is_stalled = given["on"]
        elif do == "weaken":
            self._is_weak = given["on"]
        elif do == "cut":
            for stream in list(self._streams):
                self._close(stream, is_reset=True)
        elif do == "fault":
            self._faults, self._messages = {given["message"]: given["kind"]}, 0
        return self._counts

    def _route(self, target: str) -> str:
        if target not in self._routes:
            self._routes[target] = socket.create_server(("127.0.0.1", 0), backlog=64)
        return f"tcp://127.0.0.1:{self._routes[target].getsockname()[1]}"

    def _accept(self, listener: socket.socket, target: str) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(split_address(target), timeout=1.0)
        except OSError:
            near.close()
            return
        for side in (near, far):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opened += 1
        for direction, source, sink in (("to_host", near, far), ("to_parent", far, near)):
            file = self._folder and self._folder / f"{self._opened:04}.{direction}"
            self._streams.append(_Stream(source, sink, direction, file))

    def _receive(self, stream: _Stream) -> None:
        try:
            data = stream.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        self._counts[stream.direction] += len(data)
        if stream.file is not None:
            with stream.file.open("ab") as opened:
                opened.write(data)
        if self._is_weak and stream.greeting_left:
            data = data.replace(b"CURVE", b"NULL\0")
        stream.arrived += data
        for unit, is_message in stream.units():
            if not self._pass(stream, unit, is_message):
                return
        self._send(stream)

    def _pass(self, stream: _Stream, unit: bytes, is_message: bool) -> bool:
        """Forward a unit and apply its fault; return False if its connection was closed."""
        self._counts["messages"] += is_message
        self._messages += is_message
        kind = self._faults.pop(self._messages, "") if is_message else ""
        self._counts["faults"] += bool(kind)
        if kind == "reset":
            self._close(stream, is_reset=True)
            return False
        stream.ready += unit * 2 if kind == "duplicate" else unit
        if kind == "delay":
            stream.held_until = time.monotonic() + DELAY_S
        if kind == "cut":
            self._close(stream)
            return False
        return True

    def _send(self, stream: _Stream) -> None:
        if stream.held_until > time.monotonic():
            return
        try:
            while stream.ready:
                sent = stream.target.send(memoryview(stream.ready)[:CHUNK_BYTES])
                del stream.ready[:sent]
        except BlockingIOError:
            return
        except OSError:
            self._close(stream)

    def _close(self, stream: _Stream, *, is_reset: bool = False) -> None:
        """Close both directions of a connection. Without a reset, try to send the rest before."""
        if stream not in self._streams:
            return
        ends = {stream.source, stream.target}
        for one in [one for one in self._streams if one.source in ends]:
            self._streams.remove(one)
            if not is_reset and one.ready:
                one.target.setblocking(True)
                one.target.settimeout(1.0)
                with contextlib.suppress(OSError):
                    one.target.sendall(one.ready)
        for end in ends:
            if is_reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


def main() -> None:
    place, records = sys.argv[1:]
    proxies = _Proxies(place, records=bool(int(records)))
    print("ready", flush=True)
    proxies.run()


if __name__ == "__main__":
    main()
