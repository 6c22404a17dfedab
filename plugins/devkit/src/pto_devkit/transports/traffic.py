"""Checks of a transport while both ends are open.

Frames and answers arrive once, complete and in order. The requested amount fits in a queue, a full
queue refuses, and large frames raise. For invalid bytes, each call returns valid data or raises an
error with a message. Claimed capabilities hold, and a transport wakes the process at its other end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pto_core.errors import EndpointClosedError, ProtocolError
from pto_core.interfaces import NativeTransport
from pto_core.interfaces.frame import (
    FRAME_HEAD_BYTES,
    Answer,
    AnswerKind,
    Frame,
    FrameKind,
    Outcome,
)
from pto_devkit import abi
from pto_devkit.checks import ContractError, expect, random_numbers
from pto_devkit.transports.link import (
    Capacity,
    ChildFace,
    Link,
    Manner,
    ParentFace,
    TransportSubject,
    load_table,
)
from pto_devkit.transports.processes import Progress, apart, running

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


# ---- limits ----

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


# ---- invalid bytes ----

_VICTIMS = 150
_CALLS = 40
_CAPACITY = Capacity(8, 4096)


def check_hostile_bytes(subject: TransportSubject) -> None:
    """Require that random bytes cause no crash, no blocked call and no invalid frame or answer.

    A frame or answer with an invalid length must not be returned.
    """
    with random_numbers(None) as numbers:
        seeds = [numbers.getrandbits(32) for _ in range(_VICTIMS)]
        apart(lambda: _try_all(subject, seeds))


def _try_all(subject: TransportSubject, seeds: list[int]) -> None:
    for seed in seeds:
        numbers = random.Random(seed)
        link = subject.link(_CAPACITY)
        parent, child = link.open_both()
        for number in range(1, _CALLS + 1):
            if numbers.random() < 0.3:
                at = numbers.choice((0, numbers.randrange(max(link.memory_bytes, 1))))
                subject.spoil(
                    link, numbers.choice(("parent", "child")), _noise(numbers), at // 8 * 8
                )
            _call(numbers, parent, child, number)
        parent.close()
        child.close()


def _noise(numbers: random.Random) -> bytes:
    """Return random bytes, or headers with an invalid length."""
    kind = numbers.random()
    if kind < 0.4:
        return numbers.randbytes(numbers.randint(1, 400))
    word = numbers.choice((0, 1, 64, 4096, 2**31, 2**32 - 1)).to_bytes(4, "little")
    return word * numbers.randint(1, 200) if kind < 0.8 else bytes(numbers.randint(1, 400))


def _call(numbers: random.Random, parent: ParentFace, child: ChildFace, number: int) -> None:
    try:
        match numbers.randrange(4):
            case 0:
                parent.submit([frame(number, numbers.randint(0, _CAPACITY.largest_data))])
            case 1:
                _expect_small([len(got.data) for got in parent.poll()])
            case 2:
                _expect_small([len(got.data) for got in child.receive(numbers.randint(0, 9))])
            case _:
                data = numbers.randbytes(numbers.randint(0, 200))
                child.answer(Answer(AnswerKind.COMPLETED, number, Outcome.FAILED, data))
    except (ProtocolError, EndpointClosedError):
        return


def _expect_small(sizes: list[int]) -> None:
    largest = max(sizes, default=0)
    expect(
        largest <= _CAPACITY.largest_data,
        f"{largest} bytes of data were returned, more than the limit",
    )


# ---- capabilities, and bells ----


def check_table(subject: TransportSubject) -> None:
    """Require that a native table has the version, the name and the capabilities of the plugin."""
    plugin = subject.plugin
    if not isinstance(plugin, NativeTransport):
        return  # the core, not the plugin, provides the table of a Python transport
    table = load_table(plugin)
    assert table is not None  # checked when the library was loaded
    expect(table.name == plugin.name.encode(), f"the table has the name {table.name!r}")
    bits = abi.TransportFlag(table.capabilities)
    claimed = {(flag.name or "").lower() for flag in abi.TransportFlag if flag in bits}
    stated = set(plugin.capabilities)
    expect(claimed == stated, f"the table claims {claimed}, the plugin {stated}")
    expect(
        load_table(plugin, "no such transport") is None,
        "the library returns a table for an unknown name",
    )


def check_memory_needed(subject: TransportSubject) -> None:
    """Require that the transport writes only to the memory that it has requested."""

    def body() -> None:
        for capacity in (Capacity(1, 4096), Capacity(300, 5000), Capacity(2, 100_000)):
            link = subject.link(capacity)
            parent, child = link.open_both()
            for number in range(1, 200):
                parent.submit([frame(number, number * 251 % link.capacity.largest_data)])
                child.receive()
                child.answer(Answer(AnswerKind.REPLY, number, data=b"x" * (number % 3000)))
                parent.poll()
            expect(
                link.margins_are_clean(),
                f"bytes outside of the {link.memory_bytes} bytes were written",
            )

    apart(body)


def check_bells(subject: TransportSubject) -> None:
    """Require that each write rings the doorbell of the other side, and no other doorbell."""

    def body() -> None:
        link = subject.link()
        parent, child = link.open_both()
        for number in range(1, 6):
            _expect_rung(link, "child", partial(parent.submit, [frame(number)]))
            receive_one(child)
            answer = Answer(AnswerKind.COMPLETED, number)
            _expect_rung(link, "parent", partial(child.answer, answer))
            reply = Answer(AnswerKind.REPLY, number, data=b"reply")
            _expect_rung(link, "parent", partial(child.answer, reply))

    apart(body)


def _expect_rung(link: Link, side: str, act: Callable[[], int]) -> None:
    bells = {"parent": link.parent_bell, "child": link.child_bell}
    for bell in bells.values():  # ringing a doorbell clears this word
        bell.sleepers = 1
    before = {name: bell.rung for name, bell in bells.items()}
    expect(act(), "an idle queue is full")
    for name, bell in bells.items():
        rung = bell.rung != before[name]
        expect(
            rung == (name == side), f"the {name}'s doorbell {'rang' if rung else 'did not ring'}"
        )
