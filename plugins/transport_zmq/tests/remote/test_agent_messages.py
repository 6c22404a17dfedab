"""The requests of a client to an agent, and the ends of sessions that an agent remembers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.link.interface import LinkMessage, Peer
from pto_transport_zmq.remote.agent import EndedSessions
from pto_transport_zmq.remote.agent_messages import (
    AwaitOpened,
    Ended,
    EndSession,
    Open,
    Opened,
    Question,
    Record,
    Unknown,
    build,
    decode_request,
    pack,
    unpack,
)
from pto_transport_zmq.remote.blueprint import Blueprint
from pto_transport_zmq.remote.session import check_build

OPEN = Open(
    session=bytes(16),
    epoch=2,
    path="L4/host0",
    core_version="1",
    python=(3, 11),
    lease_ns=1,
    blueprint=Blueprint(3, [], 1, {}, bytes(16), [], []),
    callables=[],
    ranges=[],
    buffers=(0, 0),
    queue_bytes=1,
    start_timeout_s=1.0,
    memory=1,
    buffer_memory=1,
    tasks=1,
    modules={"pack.py": bytes(3 << 20)},
)
SHORT = AwaitOpened(bytes(16), 2)
WAIT_S = 10


class Connection:
    """A stand-in for a link. It records the requests that are sent."""

    def __init__(self) -> None:
        self.connections = 1
        self.sent: list[Any] = []
        self.numbers: set[bytes] = set()
        self.arrived: deque[LinkMessage] = deque()

    def send(self, parts: Sequence[Any]) -> bool:
        number, _, content = unpack(parts)
        self.numbers.add(number)
        self.sent.append(decode_request(content))
        return True

    def receive(self) -> LinkMessage | None:
        return self.arrived.popleft() if self.arrived else None

    def answer(self, reply: Record) -> None:
        (number,) = self.numbers
        parts = [bytes(part) for part in pack(number, reply)]
        self.arrived.append(LinkMessage(Peer(b"", None), parts))


def ask_until(question: Question, link: Connection, count: int) -> None:
    """Call ``reply`` until ``count`` requests were sent."""
    until = time.monotonic() + WAIT_S
    while len(link.sent) < count:
        assert time.monotonic() < until
        assert question.reply() is None


def test_the_content_of_a_start_is_sent_once_on_each_connection() -> None:
    link: Any = Connection()
    question = Question(link, OPEN)
    ask_until(question, link, 3)
    assert link.sent == [OPEN, SHORT, SHORT]
    link.connections = 2  # the request may be lost with the first connection
    assert question.reply() is None
    assert link.sent[3:] == [OPEN]
    link.answer(Unknown())  # an earlier epoch has ended; the agent needs ``OPEN`` again
    assert question.reply() is None
    assert link.sent[4:] == [OPEN]
    link.answer(Opened(7700))
    assert question.reply() == Opened(7700)


def test_another_request_is_repeated() -> None:
    link: Any = Connection()
    question = Question(link, EndSession(bytes(16), 2))
    ask_until(question, link, 2)
    assert link.sent == [EndSession(bytes(16), 2)] * 2
    link.answer(Ended())
    assert question.reply() == Ended()


def test_an_agent_of_another_build_answers_with_its_build_alone() -> None:
    link: Any = Connection()
    question = Question(link, OPEN)
    ask_until(question, link, 1)
    (number,) = link.numbers
    link.arrived.append(LinkMessage(Peer(b"", None), [b"PTOA" + number + b"9.9.9+c0ffee"]))
    with pytest.raises(UsageError) as info:
        question.reply()
    assert str(info.value).startswith(
        f"the parent's host has ptorun-core {build()}, this host 9.9.9+c0ffee; install the same"
    )


def test_two_builds_of_one_version_are_told_apart() -> None:
    check_build(parent="1.0+a", host="1.0+a")
    with pytest.raises(UsageError, match="the code differs: install both from the same commit"):
        check_build(parent="1.0+a", host="1.0+b")


@pytest.mark.parametrize(
    "head", [b"", b"PTOA", b"PTOA12345678", b"PTOX123456781.0", b"PTOA12345678\n"]
)
def test_a_head_that_is_invalid_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not PTOA, a number and a build"):
        unpack([head, b"content"])


def test_an_agent_remembers_a_limited_number_of_ended_sessions() -> None:
    ended = EndedSessions(most=2)
    for name, epoch in ((b"a", 1), (b"b", 1), (b"a", 2), (b"c", 1)):
        ended.add(name, epoch)
    assert [ended.newest(name) for name in (b"a", b"b", b"c")] == [2, 0, 1]
