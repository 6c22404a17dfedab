"""Check closed ends, killed processes, and reopened connections."""

from __future__ import annotations

import os
import random
import threading
from multiprocessing import Pipe
from pathlib import Path

from pto_core.errors import EndpointClosedError
from pto_core.interfaces.frame import Answer, AnswerKind, Outcome
from pto_devkit.checks import expect, random_numbers
from pto_devkit.transports import processes
from pto_devkit.transports.link import Capacity, Link, ParentFace, TransportSubject
from pto_devkit.transports.processes import Progress, apart, running
from pto_devkit.transports.traffic import (
    await_closed,
    frame,
    is_success,
    poll_one,
    receive_one,
    same,
)

_KILLS = 20
_CONNECTIONS = 40


def check_parent_closes(subject: TransportSubject) -> None:
    """Require that frames sent before the parent closes arrive, and then the close is reported."""
    link = subject.link()
    is_closed, closes = Pipe(duplex=False)

    def body() -> None:
        child = link.open_child()
        is_closed.recv_bytes()
        for number in (1, 2, 3):
            same(receive_one(child), frame(number, number * 100), "frame before closing")
        await_closed(child)
        child.close()

    with running(body):
        parent = link.open_parent()
        expect(parent.submit([frame(n, n * 100) for n in (1, 2, 3)]) == 3, "3 frames do not fit")
        parent.close()
        parent.close()
        closes.send_bytes(b"closed")


def check_child_closes(subject: TransportSubject) -> None:
    """Require that answers sent before the child closes arrive; later calls report the close."""
    for submits_first, limit in ((True, 1), (False, 1), (False, 256)):
        _close_child(subject.link(), submits_first, limit)


def _close_child(link: Link, submits_first: bool, limit: int) -> None:
    answers = [
        Answer(AnswerKind.COMPLETED, 1, Outcome.FAILED, b"why"),
        Answer(AnswerKind.REPLY, 9, data=b"reply"),
        Answer(AnswerKind.COMPLETED, 2),
    ]

    def body() -> None:
        child = link.open_child()
        receive_one(child)
        receive_one(child)
        for answer in answers:
            expect(child.answer(answer), "3 answers do not fit")
        child.close()

    with running(body) as process:
        parent = link.open_parent()
        expect(parent.submit([frame(1), frame(2), frame(3)]) == 3, "3 frames do not fit")
        process.join()
        if submits_first:
            _expect_closed_submit(parent)
        got: list[Answer] = []
        progress = Progress("polling answers that a child sent before it closed")
        while len(got) < len(answers):
            polled = parent.poll(limit)
            got += polled
            progress.check(polled)
        for answer, given in zip(got, answers, strict=True):
            same(answer, given, "answer before closing")
        _expect_closed_poll(parent)
        _expect_closed_submit(parent)
        parent.close()


def _expect_closed_submit(parent: ParentFace) -> None:
    progress = Progress("submitting to a child that closed")
    while True:
        try:
            parent.submit([frame(4)])
        except EndpointClosedError:
            return
        progress.check(False)


def _expect_closed_poll(parent: ParentFace) -> None:
    progress = Progress("polling a child that closed")
    while True:
        try:
            expect(not parent.poll(), "an answer arrived that was never sent")
        except EndpointClosedError:
            return
        progress.check(False)


def check_killed_child(subject: TransportSubject) -> None:
    """Require that the parent receives a prefix of the answers of a child that is killed.

    No partial answer arrives, and no error except the close. The next connection has no data of the
    killed child.
    """
    with random_numbers(None) as numbers:
        link = subject.link(Capacity(16, 8192))
        for turn in range(_KILLS):
            _kill_one(link, numbers)
            link.reconnect()
            if turn % 5 == 0:
                check_link_is_new(link)
                link.reconnect()


def _kill_one(link: Link, numbers: random.Random) -> None:
    capacity = link.capacity.largest_data
    kill_after = numbers.randint(0, 60)

    def body() -> None:
        child = link.open_child()
        ended = 0
        while True:
            for got in child.receive(2):
                ended += 1
                same(got, frame(ended, ended * 37 % capacity), "frame")
                while not child.answer(_ending(ended)):
                    pass

    with running(body) as process:
        parent = link.open_parent()
        progress = Progress("talking to a child that will be killed")
        last = sent = 0
        while last < kill_after:
            taken = parent.submit([frame(sent + 1, (sent + 1) * 37 % capacity)])
            sent += taken
            before = last
            last = _check_answers(parent, last)
            progress.check(taken or last > before)
        process.kill()
        process.discard()
        _drain(parent, last)
        parent.close()


def _ending(number: int) -> Answer:
    if number % 3:
        return Answer(AnswerKind.COMPLETED, number)
    return Answer(
        AnswerKind.COMPLETED, number, Outcome.FAILED, bytes([number % 251]) * (number % 500)
    )


def _check_answers(parent: ParentFace, last: int) -> int:
    for got in parent.poll():
        expect(got.number > last, f"the answer to frame {got.number} came after that to {last}")
        merged = range(last + 1, got.number)
        expect(all(is_success(_ending(n)) for n in merged), f"answer {got.number} hides a failure")
        same(got, _ending(got.number), "answer")
        last = got.number
    return last


def _drain(parent: ParentFace, last: int) -> None:
    """Read the answers of a killed child until none arrive or the connection is closed."""
    try:
        for _ in range(200):
            last = _check_answers(parent, last)
    except EndpointClosedError:
        return


def check_link_is_new(link: Link) -> None:
    """Require that a connection has no data of an earlier connection, and counts frames from 1."""

    def body() -> None:
        child = link.open_child()
        same(receive_one(child), frame(77, 10), "first frame")
        expect(child.answer(Answer(AnswerKind.COMPLETED, 1)), "an answer does not fit")
        await_closed(child)
        child.close()

    with running(body):
        parent = link.open_parent()
        expect(not parent.poll(), "a new connection has an answer")
        expect(parent.submit([frame(77, 10)]) == 1, "a new connection is full")
        same(poll_one(parent), Answer(AnswerKind.COMPLETED, 1), "answer")
        parent.close()


def check_connection_is_made_again(subject: TransportSubject) -> None:
    """Require that a new connection works in the zeroed memory of an earlier connection."""
    link = subject.link()
    for _ in range(5):
        check_link_is_new(link)
        link.reconnect()


def check_connections_are_apart(subject: TransportSubject) -> None:
    """Require that several connections at once do not mix frames or answers."""

    def body() -> None:
        links = [subject.link(Capacity(2, 4096)) for _ in range(_CONNECTIONS)]
        ends = [link.open_both() for link in links]
        for number, (parent, _) in enumerate(ends, 1):
            expect(parent.submit([frame(number, number)]) == 1, "an idle queue is full")
        for number, (_, child) in enumerate(ends, 1):
            same(receive_one(child), frame(number, number), "frame of this connection")
            expect(child.answer(Answer(AnswerKind.REPLY, number)), "an idle queue is full")
        for number, (parent, _) in enumerate(ends, 1):
            same(poll_one(parent), Answer(AnswerKind.REPLY, number), "answer of this connection")

    apart(body)


def check_nothing_is_left(subject: TransportSubject) -> None:
    """Require that a closed connection leaves no descriptor, and that opening starts no thread."""

    def body() -> None:
        link = subject.link()
        _use_and_close(link)
        before = _resources()
        for _ in range(20):
            link.reconnect()
            _use_and_close(link)
        after = _resources()
        expect(
            after == before,
            f"20 closed connections left descriptors or threads: {before} before, {after} now",
        )
        expect(threading.active_count() == 1, "a transport has a Python thread")

    apart(body)


def _use_and_close(link: Link) -> None:
    parent, child = link.open_both()
    parent.submit([frame(1)])
    receive_one(child)
    child.close()
    parent.close()


def _resources() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(list(Path("/proc/self/task").iterdir()))


def check_idle_calls_return(subject: TransportSubject) -> None:
    """Require that no call blocks to wait for frames, answers or free space."""

    def body() -> None:
        link = subject.link(Capacity(1, 4096))
        parent, child = link.open_both()
        expect(child.show() == [], "a frame arrived that was never submitted")
        expect(parent.poll() == [], "an answer arrived that was never sent")
        size = link.capacity.largest_data
        for _ in range(1000):
            parent.submit([frame(1, size)])
        for _ in range(1000):
            child.answer(Answer(AnswerKind.REPLY, 1, data=bytes(size)))

    apart(body, limit_s=processes.LIMIT_S)
