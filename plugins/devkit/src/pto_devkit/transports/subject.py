"""The transport under test, loaded by name, and two ways to use its endpoints."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pto_core import plugins
from pto_core.errors import ProtocolError
from pto_core.interfaces import ChildEnd, Endpoint, NativeTransport, PythonTransport
from pto_core.interfaces.frame import Answer, Frame
from pto_devkit.failure import ContractError
from pto_devkit.transports.link import Capacity, ChildFace, Link, ParentFace

SpoilFrames = Callable[[Endpoint, bytes], None]
SpoilAnswers = Callable[[ChildEnd, bytes], None]

_LEAST_DATA = 1024


@dataclass(frozen=True)
class Manner:
    """A manner in which tests use the two ends of a link: normal or clogged.

    Normal: the queue is large, and every call reaches the transport. Clogged: the queue has the
    smallest size, some calls are refused before they reach the transport, and polls are late and
    request few answers.
    """

    capacity: Capacity
    is_clogged: bool = False

    def submit(self, numbers: random.Random, end: ParentFace, frames: list[Frame]) -> int:
        """Submit ``frames``. If clogged, submit only the first one or two, or none."""
        if not self.is_clogged:
            return end.submit(frames)
        return end.submit(frames[: numbers.randint(1, 2)]) if numbers.random() < 0.5 else 0

    def poll(self, numbers: random.Random, end: ParentFace) -> list[Answer]:
        """Poll for answers. If clogged, often return none without calling the transport."""
        if not self.is_clogged:
            return end.poll()
        return end.poll(numbers.randint(1, 2)) if numbers.random() < 0.3 else []

    def receive(self, numbers: random.Random, end: ChildFace) -> list[Frame]:
        """Receive and take frames. If clogged, often return none without calling the transport."""
        if not self.is_clogged:
            return end.receive()
        if numbers.random() < 0.5:
            return []
        shown = end.show(numbers.randint(1, 3))
        taken = numbers.randint(0, len(shown))
        end.take(taken)
        return shown[:taken]

    def answer(self, numbers: random.Random, end: ChildFace, answer: Answer) -> bool:
        """Send an answer. If clogged, often return False without calling the transport."""
        return (not self.is_clogged or numbers.random() < 0.5) and end.answer(answer)


@dataclass
class TransportSubject:
    """A transport under test. Transports in Python need the two functions; see the contract."""

    name: str
    plugin: NativeTransport | PythonTransport
    spoil_frames: SpoilFrames | None = None
    spoil_answers: SpoilAnswers | None = None

    @classmethod
    def load(
        cls,
        name: str,
        spoil_frames: SpoilFrames | None = None,
        spoil_answers: SpoilAnswers | None = None,
    ) -> TransportSubject:
        """Find the transport by name, as users do. Raises an error if it is not healthy."""
        plugin = plugins.load_transport(name)
        return cls(plugin.name, plugin, spoil_frames, spoil_answers)

    @property
    def normal(self) -> Manner:
        """Return the normal manner: space for 64 frames, and every call reaches the transport."""
        return Manner(Capacity(64, min(self.plugin.frame_limit, 65536)))

    @property
    def clogged(self) -> Manner:
        """Return the clogged manner: space for one small frame, and some calls are refused."""
        return Manner(Capacity(1, _LEAST_DATA), is_clogged=True)

    def link(self, capacity: Capacity | None = None) -> Link:
        """Open a connection."""
        return Link(self.plugin, capacity or self.normal.capacity)

    def spoil(self, link: Link, towards: str, noise: bytes, at: int) -> None:
        """Write invalid bytes to the end ``towards`` (``"parent"`` or ``"child"``), as input."""
        if isinstance(self.plugin, NativeTransport):
            link.spoil(at, noise)
            return
        parent, child = link.python_ends
        try:
            if self.spoil_frames is None or self.spoil_answers is None:
                raise ContractError(
                    "the test class of a transport in Python must define how invalid bytes reach "
                    "its ends: add static methods spoil_frames(parent_end, noise) and "
                    "spoil_answers(child_end, noise) that write the bytes to the wire unchanged"
                )
            if towards == "child":
                self.spoil_frames(parent, noise)
            else:
                self.spoil_answers(child, noise)
        except (OSError, ProtocolError):
            return  # the socket is full, or the transport refused the bytes
