"""Work on many pieces is done in steps: relay and gateway send heartbeats in between."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from test_buffers import FAR, Sides
from test_frames import INLINE_BYTES, Host, Sending, World, blob_of

from pto_core import TensorArgType
from pto_core.errors import UsageError
from pto_core.interfaces.frame import Outcome
from pto_transport_zmq.link.interface import LinkMessage as Arrived, Peer
from pto_transport_zmq.remote.address_space import (
    PIECE_BYTES,
    PIECES_PER_STEP,
    Access,
    AddressSpace,
    Range,
)
from pto_transport_zmq.remote.buffers import BufferRelay
from pto_transport_zmq.remote.frames import FrameGateway, FrameRelay
from pto_transport_zmq.remote.memory import HASHES_PER_STEP, HomeMemory, ShadowMemory
from pto_transport_zmq.remote.messages import (
    EndedFrame,
    MessageKind,
    TaskFrame,
    pack_ended,
    pack_task,
    pack_tasks,
    unpack_evicted,
)
from pto_transport_zmq.remote.requests import AllocateBuffer, FreeBuffer
from pto_transport_zmq.remote.session import AcceptedSession, DialledSession
from pto_transport_zmq.remote.wire import Message

BASE = 4 * PIECE_BYTES


class Memory(AddressSpace):
    """Memory that records which pieces were used."""

    def __init__(self, pieces: int) -> None:
        self.content = np.zeros(pieces * PIECE_BYTES, np.uint8)
        self.used: set[Range] = set()
        super().__init__([(BASE, memoryview(self.content))])

    def memory(self, place: Range) -> memoryview:
        if place.nbytes <= PIECE_BYTES:
            self.used.add(place)
        return super().memory(place)

    def release(self, place: Range) -> None:
        raise AssertionError("nothing is evicted")

    def pieces_by_step(self, step: Callable[[], bool]) -> list[int]:
        """Repeat a step until it returns True; return the number of pieces that each step used."""
        counts = []
        is_complete = False
        while not is_complete:
            self.used.clear()
            is_complete = step()
            counts.append(len(self.used))
        return counts


class Task:
    """A task with one INOUT tensor; ``first`` and ``pieces`` are numbers of pieces."""

    def __init__(self, number: int, first: int, pieces: int) -> None:
        start = BASE + first * PIECE_BYTES
        place = Range(start, start + pieces * PIECE_BYTES)
        self.number = number
        self.accesses = [Access(place, TensorArgType.INOUT, is_new=False)]
        self.fails = False

    def run(self, memory: Any) -> None:
        memory.memory(self.accesses[0].place)[:] = bytes([7]) * self.accesses[0].place.nbytes

    def frame(self) -> bytes:
        return pack_task(TaskFrame(0, self.number, 0, 0, 1, bytes(32), blob_of(self)))


# Invariant: A gateway copies, compares and frees a bounded number of pieces between two heartbeats.
def test_the_gateway_copies_before_a_frame_in_steps() -> None:
    pieces = 2 * PIECES_PER_STEP + 3
    memory = Memory(pieces)
    shadow = ShadowMemory(memory, memory.release)
    accesses = Task(0, 0, pieces).accesses

    def step() -> bool:
        is_begun = shadow.begin(1, accesses)
        assert shadow.is_copying is not is_begun
        return is_begun

    assert memory.pieces_by_step(step) == [PIECES_PER_STEP, PIECES_PER_STEP, 3]
    assert not shadow.begin(2, accesses)  # it must wait until the first frame has ended
    assert not shadow.is_copying
    memory.content[PIECE_BYTES * (pieces - 1) + 9] = 5
    changed = [one for one in shadow.results(1) if one.changes]
    assert [one.place.end for one in changed] == [BASE + pieces * PIECE_BYTES]
    shadow.end(1)
    assert shadow.begin(2, [])


def test_the_relay_hashes_before_a_frame_in_steps() -> None:
    pieces = 2 * HASHES_PER_STEP + 3
    memory = Memory(pieces)
    memory.content[0] = memory.content[-1] = 1
    home = HomeMemory(memory, 1 << 40)
    accesses = Task(0, 0, pieces).accesses
    found: list[Any] = []

    def step() -> bool:
        found.append(home.admit(1, accesses))
        assert home.is_hashing is (found[-1] is None)
        return not home.is_hashing

    assert memory.pieces_by_step(step) == [HASHES_PER_STEP, HASHES_PER_STEP, 3]
    stale = [piece.start for piece in found[-1].stale]
    assert stale == [BASE, BASE + (pieces - 1) * PIECE_BYTES]


def host_of(world: World) -> Host:
    world.done = set()
    return world.hosts[0]


def test_the_gateway_compares_after_a_frame_in_steps() -> None:
    pieces = 3
    world = World(random.Random(1), PIECE_BYTES)
    host = host_of(world)
    memory = Memory(pieces)
    shadow = ShadowMemory(memory, memory.release, pieces_per_step=1)
    host.worker_side.memory = memory
    sending = Sending(host.to_home, host.to_host)
    buffers: Any = type("Buffers", (), {"has_work": False, "step": lambda self, now: None})()
    gateway = FrameGateway(
        host.worker_side, shadow, sending, buffers, lambda request: request, None, INLINE_BYTES
    )
    world.program = [Task(0, 0, pieces)]
    gateway.handle(Message(0, MessageKind.TASKS, 1, pack_tasks(1, 1, [world.program[0].frame()])))

    def begin() -> bool:
        gateway.step(0)
        assert gateway.has_work is not bool(host.worker_side.queue)
        return bool(host.worker_side.queue)

    assert max(memory.pieces_by_step(begin)) == 2  # a step may begin a frame twice
    host.worker_side.run()

    def end() -> bool:
        gateway.step(0)
        return not gateway.has_work

    assert memory.pieces_by_step(end) == [1, 1, 1, 0]
    assert [message.kind for message in host.to_home.bulk] == [MessageKind.CHANGES] * pieces


def test_the_relay_continues_at_once_and_evicts_in_several_messages() -> None:
    pieces = 2 * PIECES_PER_STEP + 3
    world = World(random.Random(1), PIECE_BYTES)
    host = host_of(world)
    memory = Memory(2 * pieces)
    sending = Sending(host.to_host, host.to_home)
    relay = FrameRelay(
        host.parent_side,
        0,
        HomeMemory(memory, pieces * PIECE_BYTES, hashes_per_step=8),
        sending,
        BufferRelay(memory, sending),
        1000,
        INLINE_BYTES,
    )
    for number in range(2):
        host.parent_side.submit(Task(number, number * pieces, pieces), None)
        counts = memory.pieces_by_step(lambda: not relay.step())
        assert counts == [8] * (pieces // 8) + [pieces % 8]
        if number == 0:
            assert not host.to_host.bulk
            ended = pack_ended([EndedFrame(1, Outcome.SUCCEEDED)])
            relay.handle(Message(0, MessageKind.ENDED, 1, ended))
    evicted = [unpack_evicted(message.body)[1] for message in host.to_host.bulk]
    assert [len(one) for one in evicted] == [PIECES_PER_STEP, PIECES_PER_STEP, 3]
    first = BASE // PIECE_BYTES
    assert [block for one in evicted for block in one] == list(range(first, first + pieces))


class ReleasingSides(Sides):
    """Counts the released pieces."""

    released = 0

    def release(self, place: Range) -> None:
        self.released += 1
        assert place.nbytes <= PIECE_BYTES
        super().release(place)


def test_a_buffer_is_freed_in_steps_and_its_addresses_are_free_afterwards() -> None:
    pieces = 2 * PIECES_PER_STEP + 3
    sides = ReleasingSides(nbytes=(pieces + 1) * PIECE_BYTES)
    sides.ask("allocate_buffer", FAR, pieces * PIECE_BYTES)
    sides.far[:] = 1
    sides.gateway.handle(90, FreeBuffer(FAR), 0)
    sides.gateway.handle(91, AllocateBuffer(FAR + PIECE_BYTES, 1), 0)
    assert not sides.to_home.control
    counts = []
    while sides.gateway.has_work:
        before = sides.released
        sides.gateway.step(0)
        counts.append(sides.released - before)
    assert counts == [PIECES_PER_STEP, PIECES_PER_STEP, 3]
    assert np.array_equal(sides.far, np.arange(len(sides.far)) >= pieces * PIECE_BYTES)
    while (message := sides.to_home.deliver()) is not None:
        sides.receive(message)
    assert isinstance(sides.replies[91][1].exception, UsageError)
    assert sides.replies[90] == (True, None)
    sides.ask("allocate_buffer", FAR + PIECE_BYTES, 1)


def test_heartbeats_that_arrived_during_a_long_step_are_read_at_once() -> None:
    """If heartbeats queued up, the session would read old clocks and end."""
    waiting: deque[int] = deque()

    class Line:
        connections, problem = 0, ""

        def receive(self) -> Any:
            return Arrived(Peer(b"", None), [b""]) if waiting and waiting.popleft() >= 0 else None

    session: Any = type("Session", (), {"received": lambda *_: []})()
    line: Any = Line()
    ends = (
        DialledSession(line, [line, line], session),
        AcceptedSession(line, line, session),
    )
    for end in ends:
        waiting.extend(range(10))
        assert end.receive(0) == []
        assert not waiting
