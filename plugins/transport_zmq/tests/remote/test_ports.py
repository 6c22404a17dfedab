"""The native ends of relay and gateway: frames and answers over a real transport."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pto_core import _worker
from pto_core._worker import BellWatch, ChildPort, ParentPort, SharedMapping, plain_tasks
from pto_core.errors import EndpointClosedError, ProtocolError
from pto_core.interfaces.frame import AnswerKind, FrameKind, Outcome
from pto_core.plugins import load_transport
from pto_core.worker.endpoints import Opener

DIGEST = bytes(range(32))
PENDING, MET, FAILED = range(3)
QUEUE_BYTES = 4096


@dataclass
class Pair:
    """Both ports of one connection, and the progress table between them."""

    parent: ParentPort
    child: ChildPort
    memory: SharedMapping

    def task(self, number: int, data: bytes = b"", required: int = 0) -> bool:
        return self.parent.submit(FrameKind.TASK, number, DIGEST, 3, bool(data), required, data)

    def record(self) -> dict[str, int]:
        return _worker.progress_table_record(self.memory.address, 0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    opener = Opener(load_transport("shm"), QUEUE_BYTES // 128, QUEUE_BYTES)
    table_bytes = -(-_worker.progress_table_bytes(2) // 4096) * 4096
    memory = SharedMapping(table_bytes + opener.memory_bytes)
    table = memory.address
    _worker.create_progress_table(table, 2, 2)
    connection = opener.connect(
        "L4/host0",
        memory=(table + table_bytes, opener.memory_bytes),
        parent_bell=_worker.progress_table_parent_bell(table),
        child_bell=_worker.progress_table_child_bell(table, 0),
    )
    parent, child = connection.open_both()
    made = Pair(
        ParentPort(parent.table, parent.end, table),
        ChildPort(child.table, child.end, table, 0),
        memory,
    )
    yield made
    made.child.close()
    made.parent.close()


def test_frames_arrive_with_all_members_and_their_counts(pair: Pair) -> None:
    assert pair.task(7, b"12345678")
    assert pair.parent.submit(FrameKind.CONTROL, 9, bytes(32), 0, 0, 0, b"request")
    assert pair.task(8, required=1)
    first, second, third = pair.child.receive(64)
    assert first == (FrameKind.TASK, 1, 7, DIGEST, 3, 1, -1, 0, b"12345678")
    assert second[:3] == (FrameKind.CONTROL, 0, 9)
    assert second[-1] == b"request"
    assert third == (FrameKind.TASK, 2, 8, DIGEST, 3, 0, 0, 1, b"")
    assert pair.child.receive(64) == []


def test_tasks_without_tensors_travel_together(pair: Pair) -> None:
    plain, tensor = b"\0" * 16, b"\1" + b"\0" * 55
    assert pair.task(1, plain)
    assert pair.task(2)
    assert pair.task(3, tensor)
    assert pair.task(4)
    first, count, packed, has_more = pair.child.receive_plain(64)
    assert (first, count, has_more) == (1, 2, True)
    assert plain_tasks(packed, 0, 1, 64) == (2, len(packed))
    assert pair.child.receive_plain(64) == (3, 0, b"", True)
    assert [frame[1] for frame in pair.child.receive(1)] == [3]
    assert pair.child.receive_plain(64)[:2] == (4, 1)
    assert pair.child.receive_plain(64) == (5, 0, b"", False)
    assert pair.parent.submit_plain(b"", 0) == (0, 0)
    assert pair.parent.submit_plain(packed, 0) == (2, len(packed))
    one, two = pair.child.receive(64)
    assert one == (FrameKind.TASK, 5, 1, DIGEST, 3, 1, -1, 0, plain)
    assert two == (FrameKind.TASK, 6, 2, DIGEST, 3, 0, -1, 0, b"")


def test_packed_tasks_continue_after_a_full_queue(pair: Pair) -> None:
    data = bytes(200)
    assert pair.task(1, data)
    _, _, packed, _ = pair.child.receive_plain(64)
    packed, offset, received = packed * 100, 0, 0
    while offset < len(packed):
        count, nbytes = pair.parent.submit_plain(packed, offset)
        assert 0 < count < 100
        offset += nbytes
        while frames := pair.child.receive(64):
            received += len(frames)
    assert received == 100


def test_answers_arrive_in_order_with_their_data(pair: Pair) -> None:
    for number in range(3):
        assert pair.task(number)
    pair.child.receive(64)
    assert pair.child.answer(2, Outcome.SUCCEEDED, b"")
    assert pair.child.answer(3, Outcome.FAILED, b"reason")
    assert pair.child.reply(5, b"value")
    assert pair.parent.poll() == [
        (AnswerKind.COMPLETED, 2, Outcome.SUCCEEDED, b""),
        (AnswerKind.COMPLETED, 3, Outcome.FAILED, b"reason"),
        (AnswerKind.REPLY, 5, Outcome.SUCCEEDED, b"value"),
    ]


def test_a_full_queue_is_reported_and_accepts_frames_again(pair: Pair) -> None:
    sent = 0
    while sent < 1000 and pair.task(sent, bytes(200)):
        sent += 1
    assert 0 < sent < 1000
    assert len(pair.child.receive(64)) == sent
    assert pair.task(sent, bytes(200))
    answered = 0
    while answered < 1000 and pair.child.answer(answered + 1, Outcome.FAILED, bytes(200)):
        answered += 1
    assert 0 < answered < 1000
    assert len(pair.parent.poll()) == answered
    assert pair.parent.poll() == []  # this poll releases the space of the answers
    assert pair.child.answer(answered + 1, Outcome.FAILED, bytes(200))


def test_a_frame_that_is_too_large_is_an_error(pair: Pair) -> None:
    with pytest.raises(ProtocolError):
        pair.task(1, bytes(QUEUE_BYTES + 8))


def test_a_requirement_is_pending_until_its_frame_has_ended(pair: Pair) -> None:
    for outcome in (True, False):
        count = pair.child.completed + 1
        assert pair.child.requirement(count + 1, 0, count) == PENDING
        pair.child.ended(outcome)
        assert pair.child.requirement(count + 1, 0, count) == (MET if outcome else FAILED)
    with pytest.raises(ProtocolError, match="child 5 of 2"):
        pair.child.requirement(1, 5, 1)


def test_the_counts_of_a_frame_are_published(pair: Pair) -> None:
    pair.child.left(4)
    pair.child.started(2, age_ns=5_000_000_000)
    record = pair.record()
    assert record["may_have_begun"] == 4
    assert record["started"] == 2
    pair.child.started(1, age_ns=0)  # a report about an older frame changes nothing
    assert pair.record()["started"] == 2
    assert pair.parent.started == 2
    assert 5_000_000_000 <= pair.parent.started_age_ns < 60_000_000_000


def test_frames_end_together(pair: Pair) -> None:
    pair.child.ended(True, 3)
    pair.child.ended(False)
    assert pair.child.completed == 4
    assert pair.parent.succeeded(0) == 3


def test_successes_in_the_table_are_known_before_the_answer(pair: Pair) -> None:
    for outcome in (True, True, False, True):
        pair.child.ended(outcome)
    assert pair.parent.succeeded(0) == 2
    assert pair.parent.succeeded(3) == 4
    assert pair.parent.succeeded(4) == 4


def test_a_closed_parent_is_an_error_of_the_child(pair: Pair) -> None:
    pair.task(1)
    pair.parent.close()
    assert len(pair.child.receive(64)) == 1
    with pytest.raises(EndpointClosedError):
        pair.child.receive(64)


def test_a_closed_child_is_an_error_of_the_parent(pair: Pair) -> None:
    pair.child.close()
    with pytest.raises(ProtocolError, match="closed its end"):
        pair.parent.poll()


@pytest.fixture
def watch(pair: Pair) -> Iterator[BellWatch]:
    descriptor = _worker.open_bell_descriptor(pair.child.bell)
    made = BellWatch(pair.child.bell)
    assert made.descriptor == descriptor
    yield made
    os.close(descriptor)


def is_readable(watch: BellWatch, timeout_s: float) -> bool:
    return bool(select.select([watch.descriptor], [], [], timeout_s)[0])


def test_a_watch_is_readable_after_a_ring_if_it_was_armed(pair: Pair, watch: BellWatch) -> None:
    pair.task(0)
    assert not is_readable(watch, 0)
    for number in range(20):
        watch.arm()
        assert not is_readable(watch, 0)
        pair.task(number)  # this frame rings the doorbell of the child
        assert is_readable(watch, 30)
        pair.child.receive(64)


def test_a_ring_of_a_forked_process_makes_a_watch_readable(pair: Pair, watch: BellWatch) -> None:
    watch.arm()
    if os.fork() == 0:
        try:
            pair.task(1)
        finally:
            os._exit(0)
    assert is_readable(watch, 30)
    os.wait()


def test_frames_between_arm_and_the_wait_are_not_missed(pair: Pair, watch: BellWatch) -> None:
    received = 0
    for number in range(500):
        watch.arm()
        pair.task(number)
        assert is_readable(watch, 30)
        received += len(pair.child.receive(64))
    assert received == 500
