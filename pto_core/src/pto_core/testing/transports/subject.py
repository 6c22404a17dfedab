"""A transport under test, by name, and the two ways in which its ends are used."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pto_core import plugins
from pto_core.errors import ProtocolError
from pto_core.interfaces import ChildEnd, NativeTransport, ParentEnd, PythonTransport
from pto_core.interfaces.frame import Answer, Frame
from pto_core.testing.failure import ContractError
from pto_core.testing.transports.link import ChildFace, Link, ParentFace, Room

SpoilFrames = Callable[[ParentEnd, bytes], None]
SpoilAnswers = Callable[[ChildEnd, bytes], None]

_LEAST_DATA = 1024


@dataclass(frozen=True)
class Manner:
    """How the ends of a link are used.

    Normal: room for many frames, every call goes through. Clogged: the smallest queue, calls that
    are refused before they reach the transport, polls that come late and ask for little.
    """

    room: Room
    is_clogged: bool = False

    def submit(self, numbers: random.Random, end: ParentFace, frames: list[Frame]) -> int:
        """Submit some of ``frames``, as many as the transport and this manner take."""
        if not self.is_clogged:
            return end.submit(frames)
        return end.submit(frames[: numbers.randint(1, 2)]) if numbers.random() < 0.5 else 0

    def poll(self, numbers: random.Random, end: ParentFace) -> list[Answer]:
        """Poll, or not just now."""
        if not self.is_clogged:
            return end.poll()
        return end.poll(numbers.randint(1, 2)) if numbers.random() < 0.3 else []

    def receive(self, numbers: random.Random, end: ChildFace) -> list[Frame]:
        """Receive and take, all or part of what is shown, or not just now."""
        if not self.is_clogged:
            return end.receive()
        if numbers.random() < 0.5:
            return []
        shown = end.show(numbers.randint(1, 3))
        taken = numbers.randint(0, len(shown))
        end.take(taken)
        return shown[:taken]

    def answer(self, numbers: random.Random, end: ChildFace, answer: Answer) -> bool:
        """Answer, or not just now."""
        return (not self.is_clogged or numbers.random() < 0.5) and end.answer(answer)


@dataclass
class TransportSubject:
    """A transport under test; the two functions are a Python transport's, see the contract."""

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
        """Find the transport by name, as a user would; it has to be healthy."""
        plugin = plugins.load_transport(name)
        return cls(plugin.name, plugin, spoil_frames, spoil_answers)

    @property
    def normal(self) -> Manner:
        """Room for 64 frames, and every call goes through."""
        return Manner(Room(64, min(self.plugin.frame_limit, 65536)))

    @property
    def clogged(self) -> Manner:
        """Room for one small frame or a few, and calls that do not go through."""
        return Manner(Room(1, _LEAST_DATA), is_clogged=True)

    def link(self, room: Room | None = None) -> Link:
        """Make a connection."""
        return Link(self.plugin, room or self.normal.room)

    def spoil(self, link: Link, towards: str, noise: bytes, at: int) -> None:
        """Put ``noise`` where an end will read it."""
        if isinstance(self.plugin, NativeTransport):
            link.spoil(at, noise)
            return
        parent, child = link.python_ends
        try:
            if self.spoil_frames is None or self.spoil_answers is None:
                raise ContractError(
                    "a transport in Python has to say how hostile bytes reach its ends: give its "
                    "test class spoil_frames(parent_end, noise) and spoil_answers(child_end, "
                    "noise), static methods that put the bytes on the wire as they are"
                )
            if towards == "child":
                self.spoil_frames(parent, noise)
            else:
                self.spoil_answers(child, noise)
        except (OSError, ProtocolError):
            return  # the wire takes no more
