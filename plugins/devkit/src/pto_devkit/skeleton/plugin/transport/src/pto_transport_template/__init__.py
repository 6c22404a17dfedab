"""A transport over a pair of sockets; each packet is one frame or one answer."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pto_core.errors import EndpointClosedError
from pto_core.interfaces import API_VERSION, Connection, Health

LIMIT = 1 << 16
"""The size of the largest packet in bytes; the default socket buffer holds several such packets."""


class Packets:
    """One end of a pair of sockets, which transfer each packet whole or not at all."""

    def __init__(self, packets: socket.socket) -> None:
        packets.setblocking(False)
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.packets = packets

    def put(self, messages: Sequence[bytes]) -> int:
        """Send packets in order until the socket is full; return the number of sent packets."""
        for sent, message in enumerate(messages):
            try:
                self.packets.send(message)
            except BlockingIOError:
                return sent
            except OSError as error:
                if sent:
                    return sent
                raise EndpointClosedError("the other end is closed") from error
        return len(messages)

    def get(self, limit: int) -> list[bytes]:
        """Return the packets that have arrived."""
        got: list[bytes] = []
        while len(got) < limit:
            try:
                message = self.packets.recv(LIMIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # the other end closed before it read all packets; packets from it may still arrive
                continue
            if not message:  # the other end is closed
                if not got:
                    raise EndpointClosedError("the other end is closed")
                break
            got.append(message)
        return got

    def close(self) -> None:
        """Release the socket."""
        self.packets.close()

    abandon = close


class TemplateEndpoint(Packets):
    """The parent's end of one connection."""

    submit, poll = Packets.put, Packets.get


class TemplateChildEnd(Packets):
    """The child's end of one connection."""

    receive = Packets.get

    def answer(self, answer: bytes) -> bool:
        """Send one answer; return False if the socket has no free space."""
        return self.put([answer]) == 1


class TemplateTransport:
    """The transport ``template``."""

    name = "template"
    api_version = API_VERSION
    capabilities = frozenset({"in_order", "same_addresses"})
    frame_limit = LIMIT

    def health(self) -> Health:
        """Return whether the transport works on this machine."""
        return Health(ok=True)

    def connect(self, connection: Connection) -> tuple[TemplateEndpoint, TemplateChildEnd]:
        """Return the parent's and the child's end; called before the fork."""
        parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return TemplateEndpoint(parent), TemplateChildEnd(child)


plugin = TemplateTransport()
