"""The process of a launcher: it places hosts for one program, and ends their agents.

It is a process of its own, because a launcher may start threads, and may end its process. All its
agents end with it. It ends when its parent closes the socket, or exits.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pto_core import log
from pto_core.errors import ChildStartError
from pto_core.interfaces import AgentCommand, Launcher, PlacedAgent, Placement
from pto_core.plugins import load_launcher
from pto_core.worker.failures import Failure
from pto_core.worker.hosts import HostRequest
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import write_client_keys
from pto_transport_zmq.remote.values import (
    FailureRecord,
    Natural,
    Record,
    Text,
    decoder,
    encoded,
    failure_to_record,
    shortened,
)

MESSAGE_BYTES = 2**16
"""The largest size of a message; each is one packet of the socket."""
_REASON_CHARACTERS = 2**12
_STEP_S = 0.1


@dataclass(frozen=True)
class Start:
    """The first message to the process, as a pickle: it comes from the parent, which starts it.

    ``folder``: the process writes keys to this folder, and removes it at its end. ``parent``: the
    process id of the parent.
    """

    request: HostRequest
    transport: str
    settings: dict[str, Any]
    folder: str
    parent: int


class Place(Record, frozen=True, tag="place"):
    """Place a host; ``number`` is its name in later messages."""

    number: Natural


class Release(Record, frozen=True, tag="release"):
    """End the agent of a host, or stop to place it."""

    number: Natural


class Placed(Record, frozen=True, tag="placed"):
    """The agent of a host listens. ``keys``: the folder with the keys for it."""

    number: Natural
    address: Text
    keys: Text


class Waiting(Record, frozen=True, tag="waiting"):
    """The host is not placed yet."""

    number: Natural
    reason: Text


class PlacementFailed(Record, frozen=True, tag="failed"):
    """The host cannot be placed, or its agent has ended."""

    number: Natural
    failure: FailureRecord


Event = Placed | Waiting | PlacementFailed
decode_event: Callable[[bytes], Event] = decoder(Event, "message of a launcher", MESSAGE_BYTES)
_decode_order: Callable[[bytes], Place | Release] = decoder(
    Place | Release, "message for a launcher", MESSAGE_BYTES
)


def main() -> None:
    """Serve the parent, whose socket is the standard input."""
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    content = channel.recv(MESSAGE_BYTES)
    if not content:
        return
    start: Start = pickle.loads(content)
    log.configure(start.settings)
    channel.settimeout(_STEP_S)
    try:
        _serve(start, channel)
    except _OverError:
        return
    finally:
        shutil.rmtree(start.folder, ignore_errors=True)


class _OverError(Exception):
    """The parent has closed the socket, or has exited."""


def _serve(start: Start, channel: socket.socket) -> None:
    def send(event: Event) -> None:
        try:
            channel.send(encoded(event))
        except ConnectionError:
            raise _OverError from None

    try:
        keys = load_links(start.transport).key_pair()
        command = AgentCommand(keys.public, start.transport)
        launcher = load_launcher(start.request.launcher).open(command, start.settings)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        while True:
            order = _next_order(start, channel)
            if isinstance(order, Place):
                send(_failed(order.number, error))
    try:
        hosts = _Hosts(launcher, start, keys, send)
        while True:
            hosts.check()
            order = _next_order(start, channel)
            if isinstance(order, Place):
                hosts.place(order.number)
            elif isinstance(order, Release):
                hosts.release(order.number)
    finally:
        launcher.close()


def _next_order(start: Start, channel: socket.socket) -> Place | Release | None:
    """Wait for a short time; return the next order, or None. Raises _OverError."""
    content: bytes | None = None
    try:
        content = channel.recv(MESSAGE_BYTES)
    except TimeoutError:
        pass
    except ConnectionError:
        raise _OverError from None
    if content == b"" or os.getppid() != start.parent:
        raise _OverError
    return None if content is None else _decode_order(content)


def _failed(number: int, error: BaseException) -> PlacementFailed:
    return PlacementFailed(number, failure_to_record(Failure.of(error), MESSAGE_BYTES // 2))


class _Hosts:
    """The placements of a launcher, by the number that the parent chose."""

    def __init__(
        self, launcher: Launcher, start: Start, keys: KeyPair, send: Callable[[Event], None]
    ) -> None:
        self._launcher, self._start, self._keys, self._send = launcher, start, keys, send
        self._placements: dict[int, Placement] = {}
        self._reported: dict[int, PlacedAgent | str] = {}  # agents, and reasons of waiting

    def place(self, number: int) -> None:
        """Begin to place a host."""
        try:
            (self._placements[number],) = self._launcher.place(1, self._start.request.resources)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            self._send(_failed(number, error))

    def release(self, number: int) -> None:
        """End the agent of a host."""
        self._reported.pop(number, None)
        if number in self._placements:
            self._launcher.release(self._placements.pop(number))

    def check(self) -> None:
        """Report what has changed since the last call."""
        for number, placement in list(self._placements.items()):
            known = self._reported.get(number)
            reason = self._launcher.lost(placement)
            if reason is not None:
                self.release(number)
                text = f"the agent on {placement} has ended: {reason[-_REASON_CHARACTERS:]}"
                self._send(_failed(number, ChildStartError(text)))
            elif not isinstance(known, PlacedAgent):
                self._check_address(number, placement, known)

    def _check_address(self, number: int, placement: Placement, known: str | None) -> None:
        found = self._launcher.address(placement)
        if isinstance(found, PlacedAgent):
            folder = Path(self._start.folder) / str(number)
            write_client_keys(folder, self._start.transport, self._keys, found.key)
            self._reported[number] = found
            self._send(Placed(number, found.address, str(folder)))
        elif found.reason != known:
            self._reported[number] = found.reason
            self._send(Waiting(number, shortened(found.reason)[:_REASON_CHARACTERS]))
