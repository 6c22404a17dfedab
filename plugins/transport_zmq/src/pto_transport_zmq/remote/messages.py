"""The messages of a session: frames and their content to the other host, results and answers back.

The kinds and layouts are those of ``docs/remote-protocol.md``. All numbers are little endian. Task
frames are numbered from 1 in the order in which the session sends them.

A piece of at most :data:`INLINE_BYTES` travels with its frame or its answer, in the control
channel. A larger piece travels before that message, in the bulk channel. The receiver applies the
pieces of a frame after those of all earlier frames: the two channels have no common order.

Decoding raises :class:`~pto_core.errors.ProtocolError` for invalid bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from pto_core._worker import TASK_HEAD_FORMAT, plain_tasks
from pto_core.errors import ProtocolError
from pto_core.interfaces.frame import Outcome
from pto_transport_zmq.remote.address_space import PIECE_BYTES, Range
from pto_transport_zmq.remote.memory import Push, Result
from pto_transport_zmq.remote.wire import FIRST_FREE_KIND, Part

INLINE_BYTES = 16384
"""The largest piece that travels in the control channel."""
FRAMES_MAX = 256
"""The largest number of frames, or of ends of frames, in one message."""

_COUNT = struct.Struct("<I")
_TASKS = struct.Struct("<QI")  # number of the first frame, count of frames
_TASK = struct.Struct(TASK_HEAD_FORMAT)  # task, required, config, bytes of data, ..., pieces
_PUSH = struct.Struct("<QI")  # address and bytes
_ENDED = struct.Struct("<QIHHI")  # number, count, outcome, results, bytes of the failure
_RESULT = struct.Struct("<QII16s")  # address and bytes of the piece, bytes of changes, digest
_CONTENT = struct.Struct("<QQI")  # number of the frame, address and bytes
_CHANGES = struct.Struct("<QQI16s")  # number of the frame, address and bytes, digest
_EVICTED = struct.Struct("<QI")  # number of the frame, count of blocks
_STARTED = struct.Struct("<QQ")  # number of the frame, and its age in nanoseconds
_NUMBER = struct.Struct("<Q")
_OUTCOMES = frozenset(Outcome)


class MessageKind(IntEnum):
    """The kinds of messages that the layers above the channels exchange."""

    OPEN = FIRST_FREE_KIND  # to the gateway: the blueprint of the Worker
    TASKS = 17  # frames of tasks
    REQUEST = 18  # a control request
    SENT = 19  # between gateways: all pieces of a copy were sent
    DOING = 32  # to the relay: the current step of the start
    READY = 33  # the Worker accepts tasks
    FAILED = 34  # the start failed
    ENDED = 35  # ends of frames
    REPLY = 36  # the reply to a request
    STARTED = 37  # the newest frame that has started
    OUTPUT = 38  # printed text
    LOST = 39  # the Worker has exited
    RECEIVED = 40  # between gateways: all pieces of a copy were written
    CONTENT = 64  # bulk: a piece of the memory that a frame reads
    EVICTED = 65  # bulk: blocks that the shadow frees before the content of a frame arrives
    CHANGES = 66  # bulk: a piece of the memory that a frame has written
    BUFFER = 67  # bulk, both ways: a piece of a remote buffer, for a request


class TaskFrame(NamedTuple):
    """A task. ``required``: the number of the frame that must succeed first; 0: none."""

    number: int
    task: int
    required: int
    config: int
    flags: int
    callable: bytes
    data: bytes
    pushes: Sequence[Push] = ()


class PlainTasks(NamedTuple):
    """Consecutive tasks without tensors, as packed bytes; ``number``: of the first task."""

    number: int
    frames: int
    packed: bytes


class EndedFrame(NamedTuple):
    """One or more consecutive frames have ended; ``number``: of the last frame.

    ``frames``: the number of frames. All frames before the last one succeeded without results.
    ``failure``: the packed failure if the outcome is FAILED.
    """

    number: int
    outcome: Outcome
    failure: bytes = b""
    results: Sequence[Result] = ()
    frames: int = 1


class _Reader:
    """Reads a body; every length is checked before use."""

    def __init__(self, body: Sequence[Part], what: str) -> None:
        self._view = memoryview(body[0] if len(body) == 1 else b"".join(body))
        self.offset = 0
        self._what = what

    def values(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read a structure of fixed size; return the values of its fields."""
        return layout.unpack(self.bytes(layout.size))

    def bytes(self, count: int) -> memoryview:
        """Return the next ``count`` bytes."""
        end = self.offset + count
        if end > len(self._view):
            raise self.invalid()
        part = self._view[self.offset : end]
        self.offset = end
        return part

    def limited(self, count: int) -> int:
        """Check a number of frames, and return it."""
        if not 1 <= count <= FRAMES_MAX:
            raise self.invalid()
        return count

    def rest(self) -> memoryview:
        """Return all bytes that are left."""
        return self.bytes(len(self._view) - self.offset)

    def finish(self) -> None:
        """Raise ProtocolError if bytes are left."""
        if self.offset != len(self._view):
            raise self.invalid()

    def invalid(self) -> ProtocolError:
        """Return the error of an invalid body."""
        return ProtocolError(f"cannot decode {len(self._view)} bytes of a message as {self._what}")


def pack_task(frame: TaskFrame) -> bytes:
    """Return the bytes of a task in the body of a message."""
    _, task, required, config, flags, digest, data, pushes = frame
    parts: list[Part] = [
        _TASK.pack(task, required, config, len(data), digest, flags, len(pushes)),
        data,
    ]
    for place, content in pushes:
        parts += (_PUSH.pack(place.start, len(content)), content)
    return b"".join(parts)


def pack_tasks(number: int, count: int, packed: Sequence[bytes]) -> list[Part]:
    """Return the body with ``count`` packed tasks; ``number``: of the first task."""
    return [b"".join((_TASKS.pack(number, count), *packed))]


def unpack_tasks(body: Sequence[Part]) -> list[TaskFrame | PlainTasks]:
    """Return the frames of a body."""
    packed = body[0] if len(body) == 1 and isinstance(body[0], bytes) else b"".join(body)
    reader = _Reader([packed], "tasks")
    number, count = reader.values(_TASKS)
    last = number + reader.limited(count) - 1
    frames: list[TaskFrame | PlainTasks] = []
    while number <= last:
        plain, size = plain_tasks(packed, reader.offset, number, last + 1 - number)
        if plain:
            frames.append(PlainTasks(number, plain, bytes(reader.bytes(size))))
            number += plain
        else:
            frames.append(_task(reader, number))
            number += 1
    reader.finish()
    return frames


def pack_ended(frames: Sequence[EndedFrame]) -> list[Part]:
    """Return the body with ends of frames."""
    parts: list[Part] = [_COUNT.pack(len(frames))]
    for number, outcome, failure, results, ends in frames:
        parts += (_ENDED.pack(number, ends, outcome, len(results), len(failure)), failure)
        for place, changes, digest in results:
            parts.append(_RESULT.pack(place.start, place.nbytes, len(changes), digest))
            parts.append(changes)
    return [b"".join(parts)]


def unpack_ended(body: Sequence[Part]) -> list[EndedFrame]:
    """Return the ends of a body."""
    reader = _Reader(body, "ends of frames")
    frames = []
    for _ in range(reader.limited(*reader.values(_COUNT))):
        number, count, outcome, pieces, size = reader.values(_ENDED)
        is_possible = count == 1 or (count > 1 and not outcome and not pieces and not size)
        if outcome not in _OUTCOMES or not is_possible or count > number:
            raise ProtocolError(
                f"the end of {count} frames up to frame {number} is invalid: outcome {outcome}, "
                f"{pieces} results"
            )
        failure = bytes(reader.bytes(size))
        results = [_result(reader) for _ in range(pieces)]
        frames.append(EndedFrame(number, Outcome(outcome), failure, results, count))
    reader.finish()
    return frames


def pack_content(frame: int, push: Push) -> list[Part]:
    """Return the bulk body with a piece for a frame, or of a buffer for a request."""
    return [_CONTENT.pack(frame, push.place.start, push.place.nbytes), push.content]


def unpack_content(body: Sequence[Part]) -> tuple[int, Push]:
    """Return the number of the frame or request, and the piece."""
    (frame, address, nbytes), content = _split(body, _CONTENT, "a piece")
    if len(content) != nbytes:
        raise ProtocolError(f"a piece of {nbytes} bytes arrived with {len(content)} bytes")
    return frame, Push(_place(address, nbytes), content)


def pack_changes(frame: int, result: Result) -> list[Part]:
    """Return the bulk body with a result of a frame."""
    place, changes, digest = result
    return [_CHANGES.pack(frame, place.start, place.nbytes, digest), changes]


def unpack_changes(body: Sequence[Part]) -> tuple[int, Result]:
    """Return the number of the frame and the result."""
    (frame, address, nbytes, digest), changes = _split(body, _CHANGES, "changes of a piece")
    return frame, Result(_place(address, nbytes), changes, digest)


def pack_evicted(frame: int, blocks: Iterable[int]) -> list[Part]:
    """Return the bulk body with the blocks to free before the content of a frame."""
    numbers = list(blocks)
    packed = b"".join(map(_NUMBER.pack, numbers))
    return [_EVICTED.pack(frame, len(numbers)) + packed]


def unpack_evicted(body: Sequence[Part]) -> tuple[int, list[int]]:
    """Return the number of the frame and the blocks."""
    reader = _Reader(body, "evicted blocks")
    frame, count = reader.values(_EVICTED)
    blocks = [number for (number,) in _NUMBER.iter_unpack(reader.bytes(count * _NUMBER.size))]
    reader.finish()
    return frame, blocks


def pack_numbered(number: int, content: bytes) -> list[Part]:
    """Return the body of a request or reply: its number, then the content."""
    return [_NUMBER.pack(number), content]


def unpack_numbered(body: Sequence[Part]) -> tuple[int, bytes]:
    """Return the number and content of a request or reply."""
    reader = _Reader(body, "a request or reply")
    (number,) = reader.values(_NUMBER)
    return number, bytes(reader.rest())


def pack_started(number: int, age_ns: int) -> list[Part]:
    """Return the body that reports the newest started frame; it began ``age_ns`` ago."""
    return [_STARTED.pack(number, age_ns)]


def unpack_started(body: Sequence[Part]) -> tuple[int, int]:
    """Return the number of the newest frame that has started, and its age in nanoseconds."""
    reader = _Reader(body, "the start of a frame")
    number, age_ns = reader.values(_STARTED)
    reader.finish()
    return number, age_ns


def _split(
    body: Sequence[Part], layout: struct.Struct, what: str
) -> tuple[tuple[Any, ...], memoryview]:
    """Return the values at the start of a body, and the rest. A body of two parts is not copied."""
    if len(body) == 2 and len(body[0]) == layout.size:
        return layout.unpack(body[0]), memoryview(body[1])
    reader = _Reader(body, what)
    return reader.values(layout), reader.rest()


def _task(reader: _Reader, number: int) -> TaskFrame:
    task, required, config, size, digest, flags, pieces = reader.values(_TASK)
    if number == 0 or required >= number:
        raise ProtocolError(
            f"frame {number} of a session requires frame {required}, which is not earlier"
        )
    data = bytes(reader.bytes(size))
    content = [_push(reader) for _ in range(pieces)]
    return TaskFrame(number, task, required, config, flags, digest, data, content)


def _push(reader: _Reader) -> Push:
    address, nbytes = reader.values(_PUSH)
    if nbytes > INLINE_BYTES:
        raise reader.invalid()
    return Push(_place(address, nbytes), reader.bytes(nbytes))


def _result(reader: _Reader) -> Result:
    address, nbytes, size, digest = reader.values(_RESULT)
    if nbytes > INLINE_BYTES:
        raise reader.invalid()
    return Result(_place(address, nbytes), reader.bytes(size), digest)


def _place(address: int, nbytes: int) -> Range:
    if not 1 <= nbytes <= PIECE_BYTES:
        raise ProtocolError(f"a piece has {nbytes} bytes; 1 to {PIECE_BYTES} are allowed")
    return Range(address, address + nbytes)


Step = Callable[[], None]


class Arrivals:
    """Runs the steps of a frame when all earlier frames are complete; keeps steps of later frames.

    Each kept step holds a credit of the bulk channel, so the credits limit the kept memory.
    """

    def __init__(self) -> None:
        self._current = 1
        self._kept: deque[tuple[int, Step]] = deque()

    def add(self, frame: int, step: Step) -> None:
        """Run a step of a frame, or keep it. Callers add the steps in the order of their frames."""
        if frame <= self._current:
            step()
        else:
            self._kept.append((frame, step))

    def complete(self, frame: int) -> None:
        """Run the kept steps of the next frame: this frame and all earlier ones are complete."""
        self._current = frame + 1
        while self._kept and self._kept[0][0] <= self._current:
            self._kept.popleft()[1]()
