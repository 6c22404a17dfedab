"""A child loop whose transport is in memory: tests add frames before it runs, then read answers."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pto_core import _worker
from pto_core._worker import ChildLoop, TaskArgs
from pto_core.errors import EndpointClosedError
from pto_core.interfaces.frame import Answer, AnswerKind, Frame, FrameKind, Outcome
from pto_core.worker.children.service import accepts_argument

QUEUE_BYTES = 1 << 16
ARGUMENTS = 1  # PTO_FRAME_HAS_ARGUMENTS


def digest_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def blob_of(args: TaskArgs) -> bytes:
    """Return the argument blob that a driver writes for these arguments."""
    view = args.view()
    head = np.array([view.tensor_count, view.scalar_count], np.int32).tobytes()
    tensors = b"".join(_tensor(tensor) for tensor in view.tensors)
    return head + tensors + np.array(view.scalars, np.uint64).tobytes()


def _tensor(tensor) -> bytes:
    shapes = [*tensor.shape, 0, 0, 0, 0, 0][:5]
    return (
        np.array([tensor.address], np.uint64).tobytes()
        + np.array([*shapes, len(tensor.shape)], np.uint32).tobytes()
        + bytes([tensor.dtype, tensor.child_memory, 0, 0, 0, 0, 0, 0])
    )


class End:
    """The child's end of a Python transport; it reports a close when it has no more frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.answers: list[Answer] = []
        self.free_space = 1 << 30
        self.is_closed = False
        self.batch = 1 << 30
        self.when_empty: Callable[[], None] = self.close_parent

    def close_parent(self) -> None:
        raise EndpointClosedError("the parent closed")

    def receive(self, limit: int) -> list[bytes]:
        count = min(limit, self.batch)
        taken, self.frames = self.frames[:count], self.frames[count:]
        if not taken:
            self.when_empty()
        return taken

    def answer(self, answer: bytes) -> bool:
        if self.free_space <= 0:
            return False
        self.free_space -= 1
        self.answers.append(Answer.unpack(answer))
        return True

    def close(self) -> None:
        self.is_closed = True


class ProgressTable:
    """The progress table of a Worker with some children."""

    def __init__(self, children: int = 1) -> None:
        self.memory = mmap.mmap(-1, _worker.progress_table_bytes(children))
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        _worker.create_progress_table(self.address, children, 2)

    def record(self, child: int = 0) -> dict[str, Any]:
        return _worker.progress_table_record(self.address, child)


class Child:
    """One child: its end, its loop, and the frames that are sent to it."""

    def __init__(
        self, progress: ProgressTable | None = None, index: int = 0, queue_bytes: int = QUEUE_BYTES
    ) -> None:
        self.progress = progress or ProgressTable()
        self.end = End()
        place = _worker.ConnectionPlace(
            0,
            0,
            _worker.progress_table_parent_bell(self.progress.address),
            _worker.progress_table_child_bell(self.progress.address, index),
            64,
            queue_bytes,
        )
        self.loop = ChildLoop(
            table=_worker.python_transport_table(),
            end=_worker.open_python_child(self.end, place),
            progress_tables=self.progress.address,
            child=index,
            largest_frame_bytes=queue_bytes,
        )
        self.sent = 0

    def know(self, function: Callable[..., Any], name: str = "f") -> None:
        self.loop.add(digest_of(name), function, accepts_argument(function))

    def task(self, name: str = "f", args: TaskArgs | None = None, **head: Any) -> int:
        """Send a task frame and return its number on this connection."""
        self.sent += 1
        data = b"" if args is None else blob_of(args)
        flags = 0 if args is None else ARGUMENTS
        frame = Frame(FrameKind.TASK, self.sent, data, digest_of(name), **{"flags": flags, **head})
        self.end.frames.append(frame.pack())
        return self.sent

    def control(self, number: int, data: bytes = b"") -> None:
        self.end.frames.append(Frame(FrameKind.CONTROL, number, data).pack())

    def run(
        self, control: Callable[[bytes], bytes] = bytes, invoke: Callable[..., Any] | None = None
    ) -> bool:
        return self.loop.run(control=control, invoke=invoke)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """Return the outcome of each reported frame, including merged ones."""
        found: dict[int, Outcome] = {}
        for answer in completions(self.end.answers):
            for number in range(len(found) + 1, answer.number):
                found[number] = Outcome.SUCCEEDED
            found[answer.number] = answer.outcome
        return found


def completions(answers: Iterable[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.kind is AnswerKind.COMPLETED]
