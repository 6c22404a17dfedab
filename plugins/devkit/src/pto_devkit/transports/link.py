"""One connection under test: both ends, through the table that the core uses.

The core's table also drives a transport in Python, so the tests use the production path. The
classes here only convert: a status becomes an exception, a view becomes a frame.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pto_core import plugins
from pto_core.errors import EndpointClosedError, ProtocolError
from pto_core.interfaces import ChildEnd, Endpoint, NativeTransport, PythonTransport
from pto_core.interfaces.frame import FRAME_HEAD_BYTES, Answer, AnswerKind, Frame, Outcome
from pto_core.worker.endpoints import ChildConnection, OpenedEnd, Opener
from pto_devkit import abi
from pto_devkit.checks import ContractError, expect

_MOST = 256


@dataclass(frozen=True)
class Capacity:
    """The capacities of a connection."""

    queue_frames: int = 64
    queue_bytes: int = 65536

    @property
    def largest_data(self) -> int:
        """The size of the data in the largest frame, and in the largest answer."""
        return self.queue_bytes - FRAME_HEAD_BYTES


class _Face:
    def __init__(self, opened: OpenedEnd, link: Link) -> None:
        self._link = link  # keeps the memory of the end alive
        self.table = abi.TransportApi.from_address(opened.table)
        self.end = ctypes.c_void_p(opened.end)
        self._is_open = True

    def _count(self, call: str, status: int, most: int, message: bytes | None) -> int:
        if status == abi.ENDPOINT_CLOSED:
            raise EndpointClosedError(f"{call}: the other end is closed")
        if status == abi.ENDPOINT_PROTOCOL:
            text = (message or b"").decode(errors="replace")
            expect(text, f"{call} returned an error without a message")
            raise ProtocolError(f"{call}: {text}")
        expect(0 <= status <= most, f"{call} returned {status}, expected 0 to {most}")
        return status


class ParentFace(_Face):
    """The parent's end."""

    def submit(self, frames: Sequence[Frame]) -> int:
        """Offer frames. Return the number of frames that were accepted."""
        heads = [abi.Frame.from_buffer_copy(frame.pack()) for frame in frames]
        data = [ctypes.create_string_buffer(frame.data, len(frame.data)) for frame in frames]
        views = (abi.FrameView * len(frames))(
            *(
                abi.FrameView(ctypes.pointer(head), ctypes.addressof(content))
                for head, content in zip(heads, data, strict=True)
            )
        )
        status = self.table.submit(self.end, views, len(frames))
        # The caller owns the offered memory again, so overwrite it: a transport that kept a
        # reference would read this.
        for head, content in zip(heads, data, strict=True):
            ctypes.memset(ctypes.addressof(head), 0xEE, ctypes.sizeof(head))
            ctypes.memset(ctypes.addressof(content), 0xEE, len(content))
        return self._count("submit()", status, len(frames), self.table.parent_error(self.end))

    def poll(self, limit: int = _MOST) -> list[Answer]:
        """Poll and copy the answers."""
        return [_answer(shown) for shown in self.poll_views(limit)]

    def poll_views(self, limit: int = _MOST) -> list[abi.Answer]:
        """Poll without a copy: views of the transport's memory, valid until the next poll."""
        answers = (abi.Answer * max(limit, 1))()
        status = self.table.poll(self.end, answers, limit)
        return list(
            answers[: self._count("poll()", status, limit, self.table.parent_error(self.end))]
        )

    def close(self) -> None:
        """Close the end."""
        if self._is_open:
            self._is_open = False
            self.table.close_parent(self.end)


class ChildFace(_Face):
    """The child's end."""

    def show(self, limit: int = _MOST) -> list[Frame]:
        """Return the oldest frames without taking them."""
        views = (abi.FrameView * max(limit, 1))()
        status = self.table.receive(self.end, views, limit)
        count = self._count("receive()", status, limit, self.table.child_error(self.end))
        return [_frame(view) for view in views[:count]]

    def take(self, count: int) -> None:
        """Take the oldest ``count`` frames."""
        self.table.take(self.end, count)

    def receive(self, limit: int = _MOST) -> list[Frame]:
        """Receive and take."""
        frames = self.show(limit)
        self.take(len(frames))
        return frames

    def answer(self, answer: Answer) -> bool:
        """Offer one answer. Return whether it was accepted."""
        data = ctypes.create_string_buffer(answer.data, len(answer.data))
        native = abi.Answer(
            answer.number,
            ctypes.addressof(data) if answer.data else None,
            len(answer.data),
            answer.kind,
            answer.outcome,
        )
        status = self.table.answer(self.end, ctypes.byref(native))
        ctypes.memset(ctypes.addressof(data), 0xEE, len(data))
        return bool(self._count("answer()", status, 1, self.table.child_error(self.end)))

    def close(self) -> None:
        """Close the end."""
        if self._is_open:
            self._is_open = False
            self.table.close_child(self.end)


class Link:
    """One connection in its own memory. Each end is opened in the process that uses it."""

    def __init__(self, transport: NativeTransport | PythonTransport, capacity: Capacity) -> None:
        self.capacity = capacity
        self._opener = Opener(transport, capacity.queue_frames, capacity.queue_bytes)
        self.memory_bytes = self._opener.memory_bytes
        expect(self.memory_bytes >= 1, "memory_needed() returned 0; expected at least 1")
        # Layout: doorbells, a page before the memory, the memory, and a page after it. Nothing may
        # write to the two pages.
        self._mapping = mmap.mmap(-1, 2 * abi.PAGE + self.memory_bytes + abi.PAGE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self.parent_bell = abi.Bell.from_address(first)
        self.child_bell = abi.Bell.from_address(first + ctypes.sizeof(abi.Bell))
        self.memory = first + 2 * abi.PAGE
        self._endpoint = self._connect()

    def _connect(self) -> ChildConnection:
        return self._opener.connect(
            "L3/child0",
            (self.memory, self.memory_bytes),
            ctypes.addressof(self.parent_bell),
            ctypes.addressof(self.child_bell),
        )

    def reconnect(self) -> None:
        """Reconnect in the same memory, as for a restarted child."""
        ctypes.memset(self.memory, 0, self.memory_bytes)
        self._endpoint = self._connect()

    @property
    def python_ends(self) -> tuple[Endpoint, ChildEnd]:
        """Both ends of a transport that is implemented in Python."""
        if self._endpoint.ends is None:
            raise ContractError("a native transport has no ends in Python")
        return self._endpoint.ends

    def open_both(self) -> tuple[ParentFace, ChildFace]:
        """Open both ends in this process."""
        parent, child = self._endpoint.open_both()
        return ParentFace(parent, self), ChildFace(child, self)

    def open_parent(self) -> ParentFace:
        """Open the parent's end, after the fork."""
        return ParentFace(self._endpoint.open_parent(), self)

    def open_child(self) -> ChildFace:
        """Open the child's end, in the child."""
        return ChildFace(self._endpoint.open_child(), self)

    def margins_are_clean(self) -> bool:
        """Return whether the pages around the memory are unchanged."""
        before = ctypes.string_at(self.memory - abi.PAGE, abi.PAGE)
        behind = ctypes.string_at(self.memory + self.memory_bytes, abi.PAGE)
        return not any(before) and not any(behind)

    def spoil(self, at: int, noise: bytes) -> None:
        """Overwrite the connection's memory from offset ``at``, to simulate corruption."""
        noise = noise[: self.memory_bytes - at]
        ctypes.memmove(self.memory + at, noise, len(noise))


def load_table(transport: NativeTransport, name: str | None = None) -> abi.TransportApi | None:
    """Request the table of ``name`` from a native library, by default the transport's own."""
    library = ctypes.CDLL(str(transport.library()))
    entry = library.pto_transport_entry
    entry.restype = ctypes.POINTER(abi.TransportApi)
    table = entry((name or transport.name).encode())
    return abi.TransportApi.from_address(ctypes.addressof(table.contents)) if table else None


def _frame(view: abi.FrameView) -> Frame:
    head = view.frame.contents
    packed = bytes(head) + abi.bytes_at(view.data, head.bytes)
    try:
        return Frame.unpack(packed)
    except ProtocolError as error:
        raise ContractError(f"receive() returned a frame that no parent sends: {error}") from error


def _answer(shown: abi.Answer) -> Answer:
    data = abi.bytes_at(shown.data, shown.bytes)
    return Answer(AnswerKind(shown.kind), shown.number, Outcome(shown.outcome), data)


# ---- the transport under test, loaded by name ----

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
