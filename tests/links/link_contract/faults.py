"""Links with faults, for tests of the protocol above them.

:class:`FaultyLinks` wraps a working plugin. Its ends clog, lose, duplicate and reorder messages and
cut connections. The faults of each message depend on the seed, the order in which the ends were
opened, and the number of the message, not on time::

    links = FaultyLinks(load_links("zmq"), Faults(seed=7, lose=0.1, reorder=0.1))
    link = links.dial(address, credentials, server_key)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from pto_core.interfaces import Health
from pto_transport_zmq.link.interface import (
    Buffer,
    KeyPair,
    Link,
    LinkLimits,
    LinkMessage,
    Links,
    Listener,
    Peer,
    Ready,
)

LARGE_BYTES = 1 << 16
_Send = Callable[[], bool]


@dataclass(frozen=True)
class Faults:
    """The share of messages that has each fault, from 0 to 1.

    ``clog``: ``send`` returns False a few times before it accepts the message. ``lose``: the
    message is accepted, and lost. ``duplicate``: it is sent twice. ``reorder``: it is sent after
    one to three later messages, or at the next ``wait``. ``cut``: the connection is cut after the
    message. ``cut_after``: the numbers of messages, counted from 0 on each link, after which a cut
    is certain. Only links cut connections, not listeners, because one cut affects both directions.
    ``loses_large``: a link loses each message with a part of more than ``LARGE_BYTES``, as a path
    with a small MTU does. ``pace_s``: it sends one of them in that time.
    """

    seed: int = 0
    clog: float = 0.0
    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut: float = 0.0
    cut_after: Collection[int] = ()
    loses_large: bool = False
    pace_s: float = 0.0


@dataclass
class _Fate:
    """The faults of one message."""

    refusals: int
    is_lost: bool
    is_doubled: bool
    delay: int
    is_cut: bool


class _Disturbance:
    """The faults of the messages that one end sends."""

    def __init__(self, faults: Faults, number: int) -> None:
        self.is_clogged = False
        self._faults = faults
        self._numbers = random.Random(f"{faults.seed} {number}")
        self._next: dict[Hashable, _Fate] = {}
        self._held: list[tuple[int, _Send]] = []
        self._sent = 0

    def send(self, receiver: Hashable, send: _Send) -> tuple[bool, bool]:
        """Send a message with its faults; return whether it was accepted, and whether to cut."""
        fate = self._next.setdefault(receiver, self._draw())
        if fate.refusals:
            fate.refusals -= 1
            self.is_clogged = True
            return False, False
        is_passed = not (fate.is_lost or fate.delay)
        if is_passed and not send():
            return False, False
        del self._next[receiver]
        self._sent += 1
        self._age()
        if fate.is_doubled:
            send()
        if fate.delay:
            self._held.append((fate.delay, send))
        return True, fate.is_cut

    def release(self) -> None:
        """Send the messages that were held back; keep those for which there is no free space."""
        self._held = [(0, send) for _, send in self._held if not send()]

    def forget(self) -> None:
        """Drop the messages that were held back, because their connection is cut."""
        self._held.clear()

    def _age(self) -> None:
        held = [(delay - 1, send) for delay, send in self._held]
        self._held = [(delay, send) for delay, send in held if delay > 0 or not send()]

    def _draw(self) -> _Fate:
        faults, numbers = self._faults, self._numbers
        shares = (faults.clog, faults.lose, faults.duplicate, faults.reorder, faults.cut)
        clog, lose, duplicate, reorder, cut = (numbers.random() < share for share in shares)
        number = self._sent + len(self._next)
        return _Fate(
            numbers.randint(1, 3) * clog,
            lose,
            duplicate,
            numbers.randint(1, 3) * (reorder and not lose),
            cut or number in faults.cut_after,
        )


class FaultyLink:
    """A link with faults. A cut closes the wrapped link and dials again."""

    def __init__(self, dial: Callable[[], Link], faults: Faults, number: int) -> None:
        self.inner = dial()
        self.disturbance = _Disturbance(faults, number)
        self._dial = dial
        self._faults = faults
        self._next_large_s = 0.0
        self._earlier_connections = 0

    @property
    def peer(self) -> Peer:
        """The listener."""
        return self.inner.peer

    @property
    def connections(self) -> int:
        """The number of connections since ``dial``, including those after cuts."""
        return self._earlier_connections + self.inner.connections

    @property
    def problem(self) -> str:
        """The problem of the wrapped link."""
        return self.inner.problem

    def cut(self) -> None:
        """Cut the connection; messages in both directions are lost."""
        self._earlier_connections += self.inner.connections
        self.disturbance.forget()
        self.inner.close()
        self.inner = self._dial()

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Send with the faults of this message."""
        if max(map(len, parts)) > LARGE_BYTES:
            if self._faults.loses_large:
                return True
            if time.monotonic() < self._next_large_s:
                self.disturbance.is_clogged = True
                return False
            self._next_large_s = time.monotonic() + self._faults.pace_s
        accepted, is_cut = self.disturbance.send(None, lambda: self.inner.send(parts))
        if is_cut:
            self.cut()
        return accepted

    def receive(self) -> LinkMessage | None:
        """Receive."""
        return self.inner.receive()

    def close(self, linger_s: float = 0.0) -> None:
        """Close the wrapped link."""
        self.disturbance.forget()
        self.inner.close(linger_s)


class FaultyListener:
    """A listener with faults."""

    def __init__(self, inner: Listener, faults: Faults, number: int) -> None:
        self.inner = inner
        self.disturbance = _Disturbance(faults, number)

    @property
    def address(self) -> str:
        """The address."""
        return self.inner.address

    def allow(self, keys: Collection[str]) -> None:
        """Replace the allowed keys."""
        self.inner.allow(keys)

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send with the faults of this message."""
        return self.disturbance.send(peer, lambda: self.inner.send(peer, parts))[0]

    def receive(self) -> LinkMessage | None:
        """Receive."""
        return self.inner.receive()

    def close(self, linger_s: float = 0.0) -> None:
        """Close the wrapped listener."""
        self.disturbance.forget()
        self.inner.close(linger_s)


class FaultyLinks:
    """A link plugin whose ends have faults; its ``wait`` accepts only these ends."""

    def __init__(self, inner: Links, faults: Faults) -> None:
        self.inner, self.faults = inner, faults
        self.capabilities = inner.capabilities
        self._opened = 0

    def health(self) -> Health:
        """Return the health of the wrapped plugin."""
        return self.inner.health()

    def key_pair(self) -> KeyPair:
        """Return new keys."""
        return self.inner.key_pair()

    def listen(
        self,
        address: str,
        credentials: KeyPair | None = None,
        allowed: Collection[str] = (),
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it is immutable
        insecure: bool = False,
    ) -> FaultyListener:
        """Listen."""
        inner = self.inner.listen(address, credentials, allowed, limits=limits, insecure=insecure)
        return FaultyListener(inner, self.faults, self._number())

    def dial(
        self,
        address: str,
        credentials: KeyPair | None = None,
        server_key: str | None = None,
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it is immutable
        insecure: bool = False,
    ) -> FaultyLink:
        """Dial."""

        def dial() -> Link:
            return self.inner.dial(
                address, credentials, server_key, limits=limits, insecure=insecure
            )

        return FaultyLink(dial, self.faults, self._number())

    def wait(
        self,
        ends: Sequence[FaultyLink | FaultyListener],
        timeout_s: float | None = None,
        descriptors: Collection[int] = (),
    ) -> Ready:
        """Send the messages that were held back, then wait; report a clogged end at once."""
        for end in ends:
            end.disturbance.release()
        clogged = [end for end in ends if end.disturbance.is_clogged]
        inner = [end.inner for end in ends]
        ready = self.inner.wait(inner, 0 if clogged else timeout_s, descriptors)
        for end in clogged:
            end.disturbance.is_clogged = False
        found = [end for end in ends if end.inner in ready.ends or end in clogged]
        return Ready(found, ready.descriptors)

    def _number(self) -> int:
        self._opened += 1
        return self._opened
