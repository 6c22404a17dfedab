"""Require that frames and answers arrive once, complete and in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pto_core.errors import EndpointClosedError
from pto_core.interfaces.frame import Answer, AnswerKind, Frame, FrameKind, Outcome
from pto_devkit.failure import expect
from pto_devkit.random_seed import random_numbers
from pto_devkit.transports import abi
from pto_devkit.transports.link import ChildFace, Link, ParentFace
from pto_devkit.transports.processes import Progress, apart, running
from pto_devkit.transports.subject import Manner, TransportSubject

_FRAMES = 600
_Seen = TypeVar("_Seen")


def frame(number: int, size: int = 0, kind: FrameKind = FrameKind.TASK) -> Frame:
    """Return a frame in which every member depends on ``number``."""
    numbers = random.Random(number)
    return Frame(
        kind,
        number,
        numbers.randbytes(size),
        numbers.randbytes(32),
        numbers.randint(-1, 2**31 - 1),
        numbers.getrandbits(64),
        numbers.getrandbits(32),
        numbers.getrandbits(16),
    )


def same(got: Frame | Answer, sent: Frame | Answer, what: str) -> None:
    """Raise unless ``got`` equals ``sent``, and name the difference."""
    if got == sent:
        return
    different = [name for name in vars(sent) if getattr(got, name) != getattr(sent, name)]
    shown = ", ".join(
        f"{name} {getattr(got, name)!r:.40} instead of {getattr(sent, name)!r:.40}"
        for name in different
    )
    expect(False, f"{what} {sent.number} arrived with {shown}")


def check_frames_arrive_whole(subject: TransportSubject) -> None:
    """Require that every member and data byte of a frame arrives as submitted."""

    def body() -> None:
        link = subject.link()
        parent, child = link.open_both()
        sizes = (0, 1, 7, 8, 63, 64, 65, 4095, link.capacity.largest_data)
        for number, size in enumerate(sizes, 1):
            for kind in FrameKind:
                sent = frame(number, size, kind)
                expect(parent.submit([sent]) == 1, f"an idle queue refuses {size} bytes of data")
                same(receive_one(child), sent, "frame")
        parent.close()
        child.close()

    apart(body)


def check_frames_stay_until_taken(subject: TransportSubject) -> None:
    """Require that receive() returns the same frames, unchanged, until take()."""

    def body() -> None:
        link = subject.link()
        parent, child = link.open_both()
        sent = [frame(number, number * 5) for number in range(1, 9)]
        expect(parent.submit(sent[:4]) == 4, "4 frames do not fit in a queue for 64 frames")
        for end in (1, 4, 2):
            shown = _awaited(partial(child.show, end), end)
            for got, one in zip(shown, sent[:end], strict=True):
                same(got, one, "frame shown again")
        views = _awaited(lambda: child.show(4), 4)
        expect(parent.submit(sent[4:]) == 4, "4 more frames do not fit in a queue for 64 frames")
        for got, one in zip(views, sent[:4], strict=True):
            same(got, one, "frame")
        child.take(3)
        for got, one in zip(_awaited(child.show, 5), sent[3:], strict=True):
            same(got, one, "frame after a take")
        child.take(5)
        expect(not child.show(), "a frame is shown again after it was taken")

    apart(body)


def check_frames_in_order(subject: TransportSubject, clogged: bool = False) -> None:
    """Require that frames of any size reach a child process once and in order."""
    manner = subject.clogged if clogged else subject.normal
    with random_numbers(None) as numbers:
        seed = numbers.getrandbits(32)
        link = subject.link(manner.capacity)
        sizes = [_size(numbers, manner) for _ in range(_FRAMES)]
        with running(lambda: _take_all(link, manner, seed, sizes)):
            _submit_all(link, manner, numbers, sizes)


def _submit_all(link: Link, manner: Manner, numbers: random.Random, sizes: list[int]) -> None:
    parent = link.open_parent()
    progress = Progress("submitting")
    sent = 0
    while sent < len(sizes):
        batch = range(sent, min(sent + numbers.randint(1, 16), len(sizes)))
        taken = manner.submit(numbers, parent, [frame(n + 1, sizes[n]) for n in batch])
        sent += taken
        progress.check(taken)
    done: list[Answer] = []
    while not done:  # the child has taken all frames
        done = parent.poll()
        progress.check(done)
    same(done[0], Answer(AnswerKind.REPLY, 7, data=b"all"), "reply")
    parent.close()


def _take_all(link: Link, manner: Manner, seed: int, sizes: list[int]) -> None:
    numbers = random.Random(seed)
    child = link.open_child()
    progress = Progress("receiving")
    received = 0
    while received < len(sizes):
        frames = manner.receive(numbers, child)
        for got in frames:
            same(got, frame(received + 1, sizes[received]), "frame")
            received += 1
        progress.check(frames)
    expect(not child.show(), "a frame arrived that was never submitted")
    while not child.answer(Answer(AnswerKind.REPLY, 7, data=b"all")):
        progress.check(False)
    await_closed(child)
    child.close()


def await_closed(child: ChildFace) -> None:
    """Wait until the child's end reports that the parent closed."""
    progress = Progress("waiting for the parent to close")
    while True:
        try:
            progress.check(child.receive())
        except EndpointClosedError:
            return


@dataclass
class _Story:
    """The answers that a child sends; both sides compute them from the same random numbers."""

    answers: list[Answer]
    tasks: int


def _story(numbers: random.Random, manner: Manner, length: int) -> _Story:
    """Return successes of one or several frames, failures, skips and replies, with any data."""
    answers: list[Answer] = []
    ended = 0
    for number in range(length):
        kind = numbers.random()
        if kind < 0.25:
            data = numbers.randbytes(_size(numbers, manner))
            answers.append(Answer(AnswerKind.REPLY, 1000 + number, data=data))
            continue
        ended += 1
        outcome = Outcome.SUCCEEDED
        if kind < 0.5:
            outcome = Outcome.FAILED
        elif kind < 0.6:
            outcome = Outcome.SKIPPED
        data = numbers.randbytes(_size(numbers, manner)) if outcome is Outcome.FAILED else b""
        answers.append(Answer(AnswerKind.COMPLETED, ended, outcome, data))
    return _Story(answers, ended)


def check_answers_in_order(subject: TransportSubject, clogged: bool = False) -> None:
    """Require that answers arrive once and in order; only consecutive successes may be merged."""
    manner = subject.clogged if clogged else subject.normal
    with random_numbers(None) as numbers:
        seed = numbers.getrandbits(32)
        link = subject.link(manner.capacity)
        story = _story(numbers, manner, _FRAMES)
        with running(lambda: _answer_all(link, manner, seed, story)):
            _poll_all(link, manner, numbers, story)


def _answer_all(link: Link, manner: Manner, seed: int, story: _Story) -> None:
    numbers = random.Random(seed)
    child = link.open_child()
    progress = Progress("answering")
    received = 0
    for answer in story.answers:
        while answer.kind is AnswerKind.COMPLETED and received < answer.number:
            taken = len(manner.receive(numbers, child))
            received += taken
            progress.check(taken)
        while not manner.answer(numbers, child, answer):
            progress.check(False)
        progress.moved()
    await_closed(child)
    child.close()


def _poll_all(link: Link, manner: Manner, numbers: random.Random, story: _Story) -> None:
    parent = link.open_parent()
    progress = Progress("polling")
    awaited = list(story.answers)
    sent = 0
    while awaited:
        taken = 0
        if sent < story.tasks:
            taken = manner.submit(numbers, parent, [frame(sent + 1)])
            sent += taken
        answers = manner.poll(numbers, parent)
        for got in answers:
            _drop_merged(awaited, got)
            expect(awaited, f"an answer arrived that was never sent: {got!r:.100}")
            same(got, awaited.pop(0), "answer")
        progress.check(taken or answers)
    expect(not parent.poll(), "an answer arrived twice")
    parent.close()


def _drop_merged(awaited: list[Answer], got: Answer) -> None:
    """Remove from ``awaited`` the earlier successes that ``got`` reports by its higher number."""
    if got.kind is AnswerKind.COMPLETED:
        while awaited and is_success(awaited[0]) and awaited[0].number < got.number:
            awaited.pop(0)


def is_success(answer: Answer) -> bool:
    """Return whether this is a plain success, which a later answer may report in its place."""
    return replace(answer, number=0) == Answer(AnswerKind.COMPLETED, 0)


def check_answers_stay_until_the_next_poll(subject: TransportSubject) -> None:
    """Require that polled answers stay in place until the next poll."""

    def body() -> None:
        link = subject.link()
        parent, child = link.open_both()
        given = [
            Answer(AnswerKind.REPLY, number, data=bytes([number]) * 900) for number in range(1, 9)
        ]
        for answer in given[:4]:
            expect(child.answer(answer), "the queue has no space for 4 replies")
        shown = _awaited(parent.poll_views, 4)
        kept = [view.data for view in shown]
        full = 0
        while full < 10_000 and child.answer(replace(given[4], number=100 + full)):
            full += 1
        for view, address, answer in zip(shown, kept, given, strict=False):
            data = abi.bytes_at(address, view.bytes)
            expect(data == answer.data, f"the data of answer {answer.number} changed before a poll")

    apart(body)


def _size(numbers: random.Random, manner: Manner) -> int:
    """Choose a data size: usually small, sometimes the maximum."""
    largest = manner.capacity.largest_data
    return numbers.randint(0, largest) if numbers.random() < 0.1 else numbers.randint(0, 100)


def receive_one(child: ChildFace) -> Frame:
    """Wait for one frame and take it."""
    (got,) = _awaited(lambda: child.receive(1), 1)
    return got


def poll_one(parent: ParentFace) -> Answer:
    """Wait for one answer."""
    (got,) = _awaited(lambda: parent.poll(1), 1)
    return got


def _awaited(look: Callable[[], list[_Seen]], count: int) -> list[_Seen]:
    progress = Progress(f"waiting for {count}")
    while len(found := look()) < count:
        progress.check(False)
    return found
