"""The link under test, loaded by name, and a setup with a listener and its peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pto_devkit.checks import expect
from pto_devkit.transports import processes
from pto_transport_zmq.link.interface import (
    Buffer,
    KeyPair,
    Link,
    LinkLimits,
    LinkMessage,
    Links,
    Listener,
    Peer,
)
from pto_transport_zmq.link.loading import load_links

LIMITS = LinkLimits(queue_messages=16, part_bytes=8 << 20)
STEP_S = 0.005


@dataclass
class LinkSubject:
    """A link under test.

    ``address``: the address for listeners, with a free port. ``open_address``: an address that
    other machines can reach. ``giant``: for a link without keys, the first bytes of a message that
    announces a part of extreme length.
    """

    plugin: Links
    address: str
    open_address: str
    giant: bytes

    @classmethod
    def load(cls, name: str, address: str, open_address: str, giant: bytes) -> LinkSubject:
        """Find the link by name, as a user would; it must be healthy."""
        return cls(load_links(name), address, open_address, giant)

    @property
    def has_keys(self) -> bool:
        """Whether the link verifies keys."""
        return "peer_keys" in self.plugin.capabilities

    def key_pair(self) -> KeyPair | None:
        """Return new keys; None for a link without keys."""
        return self.plugin.key_pair() if self.has_keys else None

    def world(self, limits: LinkLimits = LIMITS, with_keys: bool = True) -> World:
        """Open a listener, with keys if the link has any."""
        return World(self, limits, with_keys and self.has_keys)


class World:
    """A listener, links to it, and the keys of both sides. One thread drives all ends."""

    def __init__(self, subject: LinkSubject, limits: LinkLimits, with_keys: bool) -> None:
        self.subject, self.plugin, self.limits = subject, subject.plugin, limits
        self.server_keys = subject.key_pair() if with_keys else None
        self.client_keys = subject.key_pair() if with_keys else None
        self.listener = self.listen()
        self.links: list[Link] = []

    @property
    def server_key(self) -> str | None:
        """The listener's public key."""
        return self.server_keys.public if self.server_keys else None

    @property
    def client_key(self) -> str | None:
        """The public key that the listener allows."""
        return self.client_keys.public if self.client_keys else None

    def listen(self, address: str | None = None) -> Listener:
        """Open a listener that allows the one client key."""
        allowed = [self.client_key] if self.client_key else []
        return self.plugin.listen(
            address or self.subject.address, self.server_keys, allowed, limits=self.limits
        )

    def dial(self, address: str | None = None, **changes: Any) -> Link:
        """Dial the listener; ``changes`` replace default arguments of ``dial``."""
        arguments = {
            "address": address or self.listener.address,
            "credentials": self.client_keys,
            "server_key": self.server_key,
            "limits": self.limits,
        }
        link = self.plugin.dial(**{**arguments, **changes})
        self.links.append(link)
        return link

    def connect(self, address: str | None = None, **changes: Any) -> tuple[Link, Peer]:
        """Dial; return the link, and the :class:`Peer` that the listener reports for it."""
        link = self.dial(address, **changes)
        return link, self.introduce(link)

    def introduce(self, link: Link) -> Peer:
        """Send the first message of a connection and return its peer."""
        hello = f"hello {len(self.links)} {link.connections}".encode()
        self.send(link, [hello])
        while list(map(bytes, (message := self.receive(self.listener)).parts)) != [hello]:
            pass  # ignore messages of closed links
        return message.peer

    def step(self, timeout_s: float = STEP_S) -> None:
        """Call ``wait`` once, in which every end does its pending work."""
        self.plugin.wait([self.listener, *self.links], timeout_s)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Drive every end until ``condition()`` is true; fail after the kit's time limit."""
        start = time.monotonic()
        while not condition():
            limit_s = processes.LIMIT_S
            expect(time.monotonic() - start < limit_s, f"{what}: not within {limit_s:.0f} s")
            self.step()

    def send(self, link: Link, parts: Sequence[Buffer]) -> None:
        """Send from a link as soon as there is free space."""
        self.until(lambda: link.send(parts), f"sending {_sizes(parts)}; problem: {link.problem!r}")

    def answer(self, peer: Peer, parts: Sequence[Buffer]) -> None:
        """Send from the listener as soon as there is free space."""
        self.until(lambda: self.listener.send(peer, parts), f"sending {_sizes(parts)} to a peer")

    def receive(self, end: Link | Listener) -> LinkMessage:
        """Return the next message."""
        found: list[LinkMessage] = []

        def has_one() -> bool:
            message = end.receive()
            found.extend([message] if message is not None else [])
            return bool(found)

        self.until(has_one, "receiving a message")
        return found[0]

    def expect_exchange(self, link: Link, what: str) -> None:
        """Require that a message and its answer arrive; earlier messages may arrive before them."""
        question, answer = [b"question", what.encode()], [b"answer", what.encode()]
        self.send(link, question)
        message = self.receive(self.listener)
        while list(map(bytes, message.parts)) != question:
            message = self.receive(self.listener)
        self.answer(message.peer, answer)
        while list(map(bytes, self.receive(link).parts)) != answer:
            pass

    def expect_silence(self, link: Link, duration_s: float, what: str) -> None:
        """Require that the link does not connect and that no message arrives."""
        until = time.monotonic() + duration_s
        while time.monotonic() < until:
            link.send([b"not for you"])
            message = self.listener.receive()
            expect(message is None, f"{what}: a message arrived")
            expect(link.connections == 0, f"{what}: the link counts a connection")
            self.step()

    def close(self) -> None:
        """Close every end."""
        for link in self.links:
            link.close()
        self.listener.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sizes(parts: Sequence[Buffer]) -> str:
    return f"a message of {[len(part) for part in parts]} bytes"
