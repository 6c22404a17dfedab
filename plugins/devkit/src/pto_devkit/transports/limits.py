"""Check queue limits: the requested amount fits, a full queue refuses, and large frames raise."""

from __future__ import annotations

from pto_core.errors import ProtocolError
from pto_core.interfaces.frame import FRAME_HEAD_BYTES, Answer, AnswerKind, Frame
from pto_devkit.failure import ContractError, expect
from pto_devkit.transports.link import Capacity, ChildFace, ParentFace
from pto_devkit.transports.processes import Progress, apart
from pto_devkit.transports.subject import TransportSubject
from pto_devkit.transports.traffic import frame, poll_one, receive_one, same

_UNBOUNDED_BYTES = 64 << 20
_LARGEST_TRIED = 1 << 20


def check_queue_holds_what_was_asked_for(subject: TransportSubject) -> None:
    """Require that queue_frames frames of 64 bytes, or queue_bytes in total, always fit at once."""

    def body() -> None:
        for capacity in (Capacity(1, 4096), Capacity(32, 4096), Capacity(5, 8192)):
            parent, child = subject.link(capacity).open_both()
            even = capacity.queue_bytes // capacity.queue_frames - FRAME_HEAD_BYTES
            for turn in range(20):
                _fill_and_empty(parent, child, capacity.queue_frames, 64)
                _fill_and_empty(parent, child, 1, turn * 97 % capacity.largest_data)
                _fill_and_empty(parent, child, capacity.queue_frames, even)
                _fill_and_empty(parent, child, 1, capacity.largest_data)

    apart(body)


def _fill_and_empty(parent: ParentFace, child: ChildFace, count: int, size: int) -> None:
    frames = [frame(number, size) for number in range(1, count + 1)]
    taken = parent.submit(frames)
    expect(taken == count, f"only {taken} of {count} frames with {size} bytes fit at once")
    for sent in frames:
        same(receive_one(child), sent, "frame")


def check_full_queue_takes_fewer(subject: TransportSubject) -> None:
    """Require that a full queue rejects frames until the child has received some."""

    def body() -> None:
        link = subject.link(Capacity(4, 4096))
        parent, child = link.open_both()
        size = link.capacity.largest_data
        sent = 0
        while parent.submit([frame(sent + 1, size)]) == 1:
            sent += 1
            expect(
                sent * size < _UNBOUNDED_BYTES,
                f"{sent} frames of {size} bytes were accepted and none was received: no limit",
            )
        expect(parent.submit([frame(sent + 1, size)]) == 0, "a full queue accepted a frame")
        for number in range(1, sent + 1):
            same(receive_one(child), frame(number, size), "frame")
        expect(not child.show(), "a frame arrived that submit() had refused")
        taken = 0
        progress = Progress("submitting to a queue that is empty again")
        while not taken:
            taken = parent.submit([frame(sent + 1, size)])
            progress.check(taken)
        same(receive_one(child), frame(sent + 1, size), "frame")

    apart(body)


def check_full_answers_are_refused(subject: TransportSubject) -> None:
    """Require that answer() reports a full queue, loses no answer, and works again after a poll."""

    def body() -> None:
        link = subject.link(Capacity(4, 4096))
        parent, child = link.open_both()
        given = 0
        while child.answer(_reply(given, link.capacity.largest_data)):
            given += 1
            expect(
                given * 4096 < _UNBOUNDED_BYTES,
                f"answer() accepted {given} answers without a poll: no limit",
            )
        for number in range(given):
            same(poll_one(parent), _reply(number, link.capacity.largest_data), "answer")
        parent.poll()
        progress = Progress("answering after the parent polled")
        while not child.answer(_reply(given, link.capacity.largest_data)):
            parent.poll()
            progress.check(False)
        same(poll_one(parent), _reply(given, link.capacity.largest_data), "answer")

    apart(body)


def _reply(number: int, size: int) -> Answer:
    return Answer(AnswerKind.REPLY, number, data=bytes([number % 251]) * size)


def check_largest_frame(subject: TransportSubject) -> None:
    """Require that a frame and an answer of queue_bytes fit, and that one byte more is refused."""

    def body() -> None:
        for queue_bytes in (4096, 10_000, min(subject.plugin.frame_limit, _LARGEST_TRIED)):
            link = subject.link(Capacity(2, queue_bytes))
            parent, child = link.open_both()
            largest = link.capacity.largest_data
            _expect_refused(parent, frame(1, largest + 1))
            _expect_refused_answer(child, _reply(1, largest + 1))
            good, too_large = frame(2, 8), frame(3, largest + 1)
            expect(
                parent.submit([good, too_large]) == 1,
                "frames before one that is too large are not sent",
            )
            same(receive_one(child), good, "frame")
            for number in (4, 5):
                expect(
                    parent.submit([frame(number, largest)]) == 1,
                    f"a frame of {queue_bytes} bytes does not fit",
                )
                same(receive_one(child), frame(number, largest), "frame")
                expect(
                    child.answer(_reply(number, largest)),
                    f"an answer of {largest} bytes is refused",
                )
                same(poll_one(parent), _reply(number, largest), "answer")

    apart(body)


def _expect_refused(parent: ParentFace, large: Frame) -> None:
    try:
        taken = parent.submit([large])
    except ProtocolError:
        return
    raise ContractError(f"submit() returned {taken} for a frame that is too large, and no error")


def _expect_refused_answer(child: ChildFace, large: Answer) -> None:
    try:
        given = child.answer(large)
    except ProtocolError:
        return
    raise ContractError(f"answer() returned {given} for an answer that is too large, and no error")
