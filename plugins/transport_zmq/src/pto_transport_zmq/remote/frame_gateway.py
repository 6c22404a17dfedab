"""The frames of a remote child on its own host: from the session to the Worker, and back.

The Worker's process sees a local parent. Frames enter its queue in the order of their arrival. A
frame that may write the same bytes as an earlier one waits here until the earlier one has ended,
because the results of a frame are the differences from the content before it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pto_core._hierarchy import ParentPort
from pto_core.errors import CapacityError, ProtocolError
from pto_core.hierarchy.failures import Failure
from pto_core.interfaces.frame import AnswerKind, FrameKind, Outcome
from pto_core.toolchain.source_folders import SourceFolders
from pto_transport_zmq.remote.accesses import Access, accesses_of, tensor_count
from pto_transport_zmq.remote.arrivals import Arrivals
from pto_transport_zmq.remote.buffer_gateway import BufferGateway
from pto_transport_zmq.remote.buffer_relay import Sending
from pto_transport_zmq.remote.clock import now_ns
from pto_transport_zmq.remote.failures import packed_to_record
from pto_transport_zmq.remote.home_memory import Push, Result
from pto_transport_zmq.remote.inbox import Message
from pto_transport_zmq.remote.messages import (
    INLINE_BYTES,
    EndedFrame,
    MessageKind,
    PlainTasks,
    TaskFrame,
    pack_changes,
    pack_ended,
    pack_numbered,
    pack_started,
    unpack_content,
    unpack_evicted,
    unpack_numbered,
    unpack_tasks,
)
from pto_transport_zmq.remote.requests import (
    BufferRequest,
    CompareModules,
    Request,
    decode_request,
    relayed_reply,
    to_refusal,
    to_reply,
)
from pto_transport_zmq.remote.shadow_memory import ShadowMemory
from pto_transport_zmq.remote.used_modules import check_used
from pto_transport_zmq.remote.values import encoded
from pto_transport_zmq.remote.wire import Part

_NO_TENSORS = bytes(4)
_EMPTY_CALLABLE = bytes(32)
_REPORT_NS = 50_000_000  # the shortest time between two reports of a start
# The most ends in one message; below FRAMES_MAX, because the message also has the results.
_ENDS_MAX = 64

Permit = Callable[[Request], Request]


@dataclass
class _Task:
    """A frame that waits for the Worker. ``is_begun``: whether its memory was copied."""

    frame: TaskFrame
    accesses: list[Access]
    is_begun: bool = False


@dataclass
class _Plain:
    """Tasks without memory that wait for the Worker; those before ``offset`` were passed on."""

    tasks: PlainTasks
    sent: int = 0
    offset: int = 0


class _Flying(NamedTuple):
    """Consecutive frames in the Worker."""

    first: int
    last: int
    is_plain: bool


@dataclass
class _Ended:
    """A frame whose end is being sent."""

    frame: EndedFrame
    results: Iterator[Result] | None
    is_plain: bool
    packed: list[Part] | None = None
    inline: list[Result] = field(default_factory=list)
    after_bulk: int = 0


class FrameGateway:
    """Passes frames to the Worker, and their ends to the relay. One thread; no call blocks.

    ``permit`` returns the permitted part of a request, or raises an exception of the error tree.
    Files of callables are written to ``folders``. ``tasks``: the most tasks in flight; None: no
    limit. ``imports``: the modules that may define imported functions; None: every module.
    """

    def __init__(
        self,
        port: ParentPort,
        shadow: ShadowMemory,
        session: Sending,
        buffers: BufferGateway,
        permit: Permit,
        folders: SourceFolders,
        inline_bytes: int = INLINE_BYTES,
        *,
        tasks: int | None = None,
        imports: tuple[str, ...] | None = None,
    ) -> None:
        self._tasks = tasks
        self._imports = imports
        self._port = port
        self._shadow = shadow
        self._session = session
        self._buffers = buffers
        self._permit = permit
        self._folders = folders
        self._inline_bytes = inline_bytes
        self._arrivals = Arrivals()
        self._received = 0  # number of the last frame that arrived
        self._left = 0  # number of the last frame that the Worker has ended
        self._waiting: deque[_Task | _Plain | tuple[int, bytes]] = deque()
        self._flying: deque[_Flying] = deque()  # frames in the Worker, oldest first
        self._ended: deque[_Ended] = deque()
        self._pieces_left = 1  # pieces that the current step may still compare
        self._batch: list[EndedFrame] = []
        self._batch_after = 0
        self._replies: deque[tuple[int, bytes]] = deque()
        # The last frame whose start was reported, and the time of the report.
        self._reported = (0, 0)

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in the Worker."""
        return bool(self._flying)

    @property
    def has_work(self) -> bool:
        """Whether the next step can continue at once: a step copies and compares few pieces."""
        return self._shadow.is_copying or self._buffers.has_work or not self._pieces_left

    @property
    def has_answers(self) -> bool:
        """Whether an answer of the Worker is not sent yet."""
        return bool(self._ended or self._batch or self._replies)

    def handle(self, message: Message) -> None:
        """Handle a message of the relay; raise ProtocolError, and CapacityError above a limit."""
        kind = message.kind
        if kind == MessageKind.TASKS:
            for frame in unpack_tasks(message.body):
                self._add(frame)
            self._check_tasks()
        elif kind == MessageKind.CONTENT:
            number, push = unpack_content(message.body)
            self._arrivals.add(number, lambda: self._write(push))
        elif kind == MessageKind.EVICTED:
            number, blocks = unpack_evicted(message.body)
            self._arrivals.add(number, lambda: self._evict(blocks))
        elif kind == MessageKind.REQUEST:
            self._request(*unpack_numbered(message.body))
        elif kind == MessageKind.BUFFER:
            self._buffers.write(message.body)
        else:
            raise ProtocolError(f"the parent's host sent a message of the wrong kind {kind}")

    def step(self, now: int) -> None:
        """Move frames as far as possible; raise ProtocolError if the Worker broke a rule."""
        self._pieces_left = self._shadow.pieces_per_step
        self._poll()
        self._submit_all()
        self._send_ended()
        self._submit_all()  # frames can wait until results were sent
        self._send_replies()
        self._buffers.step(now)
        self._report_start(now)

    # ---- from the other host ----

    def _add(self, frame: TaskFrame | PlainTasks) -> None:
        if frame.number != self._received + 1:
            raise ProtocolError(f"frame {frame.number} arrived after frame {self._received}")
        if isinstance(frame, PlainTasks):
            self._received += frame.frames
            self._waiting.append(_Plain(frame))
            self._arrivals.complete(self._received)
            return
        self._received = frame.number
        for push in frame.pushes:
            self._shadow.write(push)
        has_tensors = frame.data[:4] not in (b"", _NO_TENSORS)
        accesses = accesses_of(frame.data) if has_tensors else []
        if has_tensors and len(accesses) < tensor_count(frame.data):
            frame = frame._replace(data=self._buffers.opened(frame.data))
        self._waiting.append(_Task(frame, accesses))
        self._arrivals.complete(frame.number)

    def _check_tasks(self) -> None:
        count = self._received - self._left
        if self._tasks is not None and count > self._tasks:
            raise CapacityError(
                f"the session has {count} tasks in flight; it declared at most {self._tasks}",
                name="tasks",
                value=count,
                limit=self._tasks,
            )

    def _write(self, push: Push) -> None:
        self._shadow.write(push)
        self._session.consumed(1)

    def _evict(self, blocks: list[int]) -> None:
        for block in blocks:
            self._shadow.evict(block)
        self._session.consumed(1)

    def _request(self, number: int, content: bytes) -> None:
        request = decode_request(content)
        try:
            permitted = self._permit(request)
            if isinstance(permitted, BufferRequest):
                self._buffers.handle(number, permitted, now_ns())
                return
            if isinstance(permitted, CompareModules):
                check_used(permitted.uses)
                self._replies.append((number, encoded(to_reply(None))))
                return
            arguments = permitted.arguments(self._folders, self._imports)
        except Exception as error:  # noqa: BLE001 - the parent receives it
            self._replies.append((number, encoded(to_refusal(Failure.of(error)))))
            return
        packed = pickle.dumps((request.operation, arguments))
        self._waiting.append((number, packed))

    # ---- to the Worker and back ----

    def _submit_all(self) -> None:
        while self._submit():
            pass

    def _submit(self) -> bool:
        """Pass the next frame to the Worker; return False if it has to wait."""
        if not self._waiting:
            return False
        first = self._waiting[0]
        if isinstance(first, _Task):
            is_sent = self._submit_task(first)
        elif isinstance(first, _Plain):
            is_sent = self._submit_plain(first)
        else:
            number, content = first
            is_sent = self._port.submit(
                FrameKind.CONTROL, number, _EMPTY_CALLABLE, 0, 0, 0, content
            )
        if is_sent:
            self._waiting.popleft()
        return is_sent

    def _submit_task(self, task: _Task) -> bool:
        frame = task.frame
        if not task.is_begun:
            task.is_begun = self._shadow.begin(frame.number, task.accesses)
        if not task.is_begun or not self._port.submit(
            FrameKind.TASK,
            frame.task,
            frame.callable,
            frame.config,
            frame.flags,
            frame.required,
            frame.data,
        ):
            return False
        self._flying.append(_Flying(frame.number, frame.number, is_plain=False))
        return True

    def _submit_plain(self, plain: _Plain) -> bool:
        tasks = plain.tasks
        count, nbytes = self._port.submit_plain(tasks.packed, plain.offset)
        if count:
            first = tasks.number + plain.sent
            self._flying.append(_Flying(first, first + count - 1, is_plain=True))
            plain.sent += count
            plain.offset += nbytes
        return plain.sent == tasks.frames

    def _poll(self) -> None:
        for kind, number, outcome, data in self._port.poll():
            if kind == AnswerKind.REPLY:
                self._replies.append((number, encoded(relayed_reply(data))))
            elif outcome == Outcome.SUCCEEDED:
                self._succeed(number)
            else:
                self._succeed(number - 1)
                self._fail(number, Outcome(outcome), data)
        if self._flying:
            self._succeed(self._port.succeeded(self._flying[0].first - 1))

    def _succeed(self, number: int) -> None:
        while self._flying and self._flying[0].first <= number:
            first, last, is_plain = self._end_flying(number)
            frame = EndedFrame(last, Outcome.SUCCEEDED, frames=last + 1 - first)
            results = None if is_plain else self._shadow.results(last)
            self._ended.append(_Ended(frame, results, is_plain))

    def _end_flying(self, number: int) -> _Flying:
        """Remove and return the frames of the oldest entry up to ``number``; keep the later."""
        first, last, is_plain = self._flying.popleft()
        if last > number:
            self._flying.appendleft(_Flying(number + 1, last, is_plain))
        self._left = min(last, number)
        return _Flying(first, self._left, is_plain)

    def _fail(self, number: int, outcome: Outcome, data: bytes) -> None:
        if not self._flying or self._flying[0].first != number:
            raise ProtocolError(f"the Worker ended frame {number}, which is not the next")
        is_plain = self._end_flying(number).is_plain
        failure = encoded(packed_to_record(data)) if outcome is Outcome.FAILED else b""
        self._ended.append(_Ended(EndedFrame(number, outcome, failure), None, is_plain))

    # ---- to the other host ----

    def _send_ended(self) -> None:
        while self._ended:
            if not self._send_results(self._ended[0]):
                return
            ended = self._ended.popleft()
            if not ended.is_plain:
                self._shadow.end(ended.frame.number)
            self._batch.append(ended.frame._replace(results=ended.inline))
            self._batch_after = max(self._batch_after, ended.after_bulk)
            if len(self._batch) == _ENDS_MAX and not self._send_batch():
                return
        self._send_batch()

    def _send_results(self, ended: _Ended) -> bool:
        """Send large results of a frame; return False if some are left for a later step."""
        if ended.results is None:
            return True
        number = ended.frame.number
        while True:
            if ended.packed is None:
                if not self._pieces_left:
                    return False
                result = next(ended.results, None)
                if result is None:
                    return True
                if result.place.nbytes <= self._inline_bytes:
                    ended.inline.append(result)
                    continue
                self._pieces_left -= 1
                ended.packed = pack_changes(number, result)
            if not self._send_batch():  # the ends of earlier frames must not wait for these results
                return False
            sent = self._session.send_bulk(MessageKind.CHANGES, ended.packed)
            if sent is None:
                return False
            ended.packed, ended.after_bulk = None, sent

    def _send_batch(self) -> bool:
        """Send the ends that are ready; return whether none is left."""
        if not self._batch:
            return True
        body = pack_ended(self._batch)
        if self._session.send(MessageKind.ENDED, body, self._batch_after) is None:
            return False
        self._batch, self._batch_after = [], 0
        return True

    def _send_replies(self) -> None:
        while self._replies:
            if self._session.send(MessageKind.REPLY, pack_numbered(*self._replies[0])) is None:
                return
            self._replies.popleft()

    def _report_start(self, now: int) -> None:
        """Report the newest frame while it runs: the parent needs its start for time limits."""
        if not self._flying:
            return
        started = self._port.started
        number, sent_ns = self._reported
        first, last, _ = self._flying[0]
        if not first <= started <= last or started == number or now - sent_ns < _REPORT_NS:
            return
        body = pack_started(started, self._port.started_age_ns)
        if self._session.send(MessageKind.STARTED, body) is not None:
            self._reported = (started, now)
