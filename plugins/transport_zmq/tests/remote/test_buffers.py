"""Remote buffers on both sides of a session, over channels without sockets."""

from __future__ import annotations

import random
import struct
from collections import deque
from typing import Any

import numpy as np
import pytest
from test_frames import Sending, Way

from pto_core import DataType, TensorArgType
from pto_core.errors import BufferLostError, CapacityError, ProtocolError, UsageError
from pto_core.interfaces.frame import FrameKind, Outcome
from pto_core.worker.failures import Failure
from pto_core.worker.memory import Availability
from pto_transport_zmq.remote.address_space import (
    PIECE_BYTES,
    AddressSpace,
    Range,
    accesses_of,
    buffer_tensors,
)
from pto_transport_zmq.remote.buffers import BufferGateway, BufferRelay
from pto_transport_zmq.remote.frames import FrameRelay
from pto_transport_zmq.remote.memory import HomeMemory, Push
from pto_transport_zmq.remote.messages import MessageKind, pack_content, unpack_numbered
from pto_transport_zmq.remote.peer_copies import PeerCopies
from pto_transport_zmq.remote.requests import (
    CopyBuffer,
    FreeBuffer,
    ReadBuffer,
    decode_reply,
    decode_request,
    result_of,
    to_request,
)
from pto_transport_zmq.remote.values import encoded
from pto_transport_zmq.remote.wire import Message

HOME, FAR = 1 << 40, 1 << 44
NBYTES = 5 * PIECE_BYTES
ADDRESS = FAR + 4096
NO_LINKS: Any = None  # none, because these sessions copy nothing to other hosts


class Sides:
    """Relay and gateway of one session, with the memory of both hosts."""

    def __init__(self, seed: int = 0, limit: int | None = None, nbytes: int = NBYTES) -> None:
        chance = random.Random(seed)
        self.home = np.frombuffer(bytearray(chance.randbytes(NBYTES)), np.uint8)
        self.far = np.zeros(nbytes, np.uint8)
        self.to_host, self.to_home = Way(chance), Way(chance)
        home = AddressSpace([(HOME, memoryview(self.home))])
        far = AddressSpace([(FAR, memoryview(self.far))])
        out, back = Sending(self.to_host, self.to_home), Sending(self.to_home, self.to_host)
        self.space = home
        self.session = out
        self.relay = BufferRelay(home, out)
        peers = PeerCopies(NO_LINKS, far)
        measured = Availability(nbytes - 8192, "a test")
        self.gateway = BufferGateway(far, self.release, back, peers, limit, lambda: measured)
        self.replies: dict[int, Any] = {}
        self.number = 0

    def release(self, place: Range) -> None:
        self.far[place.start - FAR : place.end - FAR] = 0

    def ask(self, operation: str, *arguments: int) -> Any:
        """Return the result of a request; raise its failure."""
        self.number += 1
        is_sent = self.relay.send(self.number, operation, arguments)
        for _ in range(10_000):
            if not is_sent:
                is_sent = self.relay.send(self.number, operation, arguments)
            self.move()
            if self.number in self.replies:
                is_done, value = self.replies.pop(self.number)
                if is_done:
                    return value
                raise value.exception
        raise AssertionError("the request was not answered")

    def move(self) -> None:
        self.gateway.step(0)
        if (message := self.to_host.deliver()) is not None:
            if message.kind == MessageKind.BUFFER:
                self.gateway.write(message.body)
            else:
                number, content = unpack_numbered(message.body)
                self.gateway.handle(number, decode_request(content), 0)
        if (message := self.to_home.deliver()) is not None:
            self.receive(message)

    def receive(self, message: Message) -> None:
        if message.kind == MessageKind.BUFFER:
            self.relay.receive(message.body)
            return
        number, content = unpack_numbered(message.body)
        self.replies[number] = result_of(decode_reply(content))
        self.relay.end(number, is_done=self.replies[number][0])


@pytest.mark.parametrize("seed", range(20))
def test_random_copies_arrive_whole_and_nowhere_else(seed: int) -> None:
    chance = random.Random(seed)
    sides = Sides(seed)
    nbytes = NBYTES - 2 * 4096
    sides.ask("allocate_buffer", ADDRESS, nbytes)
    home, far = sides.home.copy(), sides.far.copy()
    for _ in range(12):
        count = chance.choice([0, 1, 100, PIECE_BYTES, chance.randrange(nbytes)])
        there, here = chance.randrange(nbytes - count + 1), chance.randrange(NBYTES - count + 1)
        outer, inner = slice(4096 + there, 4096 + there + count), slice(here, here + count)
        if chance.random() < 0.5:
            far[outer] = home[inner]
            sides.ask("write_buffer", ADDRESS + there, count, HOME + here)
        else:
            home[inner] = far[outer]
            sides.ask("read_buffer", ADDRESS + there, count, HOME + here)
        assert np.array_equal(sides.home, home)
        assert np.array_equal(sides.far, far)
    assert sides.to_host.unconsumed == sides.to_home.unconsumed == 0


def test_a_part_outside_live_buffers_is_refused_before_it_is_sent() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", ADDRESS, 100)
    sides.ask("allocate_buffer", ADDRESS + 4096, 100)
    for start, nbytes in ((-1, 5), (96, 5), (100, 1), (96, 4096), (8192, 1)):
        for operation in ("read_buffer", "write_buffer"):
            with pytest.raises(BufferLostError, match="are in no remote buffer that this session"):
                sides.ask(operation, ADDRESS + start, nbytes, HOME)
    sides.ask("free_buffer", ADDRESS)
    with pytest.raises(BufferLostError):
        sides.ask("read_buffer", ADDRESS, 1, HOME)
    sides.ask("read_buffer", ADDRESS + 4096, 100, HOME)
    assert not sides.to_host.control
    assert not sides.to_host.bulk


def test_a_freed_buffer_reads_as_zeros_to_its_last_page() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", ADDRESS, 5000)
    sides.ask("write_buffer", ADDRESS, 5000, HOME)
    sides.ask("free_buffer", ADDRESS)
    sides.ask("allocate_buffer", ADDRESS, 8000)
    assert not sides.far[4096 : 4096 + 8192].any()
    sides.ask("free_buffer", ADDRESS)
    sides.ask("free_buffer", ADDRESS)  # the second free has no effect


def test_a_copy_on_one_host_ends_when_its_buffer_is_freed() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", FAR, NBYTES // 2)
    sides.ask("write_buffer", FAR, 1000, HOME)
    sides.ask("copy_buffer", FAR + 5000, FAR, 1000)
    assert np.array_equal(sides.far[5000:6000], sides.home[:1000])
    sides.gateway.handle(90, CopyBuffer(FAR + 9000, FAR, 1000), 0)
    sides.gateway.handle(91, FreeBuffer(FAR), 0)
    sides.gateway.step(0)
    assert not sides.gateway.has_work
    while (message := sides.to_home.deliver()) is not None:
        sides.receive(message)
    assert isinstance(sides.replies[90][1].exception, BufferLostError)
    assert sides.replies[91] == (True, None)
    assert not sides.far.any()


def test_allocations_beyond_a_limit_change_nothing() -> None:
    sides = Sides(limit=3 * 4096)
    with pytest.raises(CapacityError, match=r"a test leaves \d+ bytes there; free buffers"):
        sides.ask("allocate_buffer", FAR, NBYTES)
    sides.ask("allocate_buffer", FAR, 4096)
    with pytest.raises(CapacityError, match="has 4096 bytes of buffers and declared at most 12288"):
        sides.ask("allocate_buffer", FAR + 4096, 8193)
    with pytest.raises(UsageError, match="there is a buffer at"):
        sides.ask("allocate_buffer", FAR + 4095, 1)
    with pytest.raises(ProtocolError, match="not inside the memory"):
        sides.ask("allocate_buffer", FAR + NBYTES, 1)
    sides.ask("allocate_buffer", FAR + 4096, 8192)
    sides.ask("free_buffer", FAR)
    sides.ask("allocate_buffer", FAR, 4096)


def test_a_limit_counts_whole_pages() -> None:
    sides = Sides(limit=3 * 4096)
    for page in range(3):
        sides.ask("allocate_buffer", FAR + page * 4096, 1)
    message = r"of 1 bytes needs 4096 bytes of whole pages: .* has 12288 bytes"
    with pytest.raises(CapacityError, match=message):
        sides.ask("allocate_buffer", FAR + 3 * 4096, 1)


def test_the_other_host_writes_only_what_was_requested() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", ADDRESS, 8192)
    before = sides.home.copy()
    assert sides.relay.send(7, "read_buffer", (ADDRESS, 100, HOME + 50))

    def piece(number: int, start: int, nbytes: int) -> list[Any]:
        return pack_content(number, Push(Range(start, start + nbytes), bytes(nbytes)))

    wrong = [piece(8, ADDRESS, 1), piece(7, ADDRESS + 1, 1), piece(7, ADDRESS - 1, 1)]
    for body in (*wrong, piece(7, HOME, 5)):
        with pytest.raises(ProtocolError, match="of a buffer arrived for request"):
            sides.relay.receive(body)
    with pytest.raises(ProtocolError, match="was answered after 0 bytes"):
        sides.relay.end(7, is_done=True)
    assert sides.relay.send(9, "read_buffer", (ADDRESS, 100, HOME + 50))
    with pytest.raises(ProtocolError, match="too many bytes of a buffer"):
        sides.relay.receive(piece(9, ADDRESS, 101))
    assert np.array_equal(sides.home, before)


def test_the_parents_host_names_only_live_buffers() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", ADDRESS, 100)
    push = Push(Range(ADDRESS + 90, ADDRESS + 101), bytes(11))
    with pytest.raises(ProtocolError, match="named memory outside all buffers"):
        sides.gateway.write(pack_content(1, push))
    with pytest.raises(ProtocolError, match="named memory outside all buffers"):
        sides.gateway.opened(blob(tensor(ADDRESS + 1, 100)))
    sides.gateway.handle(5, ReadBuffer(FAR, 1), 0)
    sides.gateway.step(0)
    message = sides.to_home.deliver()
    assert message is not None
    sides.receive(message)
    assert isinstance(sides.replies[5][1].exception, BufferLostError)
    assert not sides.far.any()


def tensor(address: int, nbytes: int, *, in_buffer: bool = True) -> bytes:
    shape = (nbytes, 0, 0, 0, 0)
    marks = int(TensorArgType.INOUT) + 1
    return struct.pack("<Q6IBBB5x", address, *shape, 1, DataType.UINT8, in_buffer, marks)


def blob(*tensors: bytes) -> bytes:
    return struct.pack("<ii", len(tensors), 1) + b"".join(tensors) + bytes(8)


def test_the_worker_receives_a_buffer_as_shared_memory() -> None:
    sides = Sides()
    sides.ask("allocate_buffer", ADDRESS, 100)
    shared = tensor(HOME, 10, in_buffer=False)
    inside, empty = tensor(ADDRESS + 10, 90), tensor(ADDRESS + 99, 0)
    sent = blob(shared, inside, empty)
    assert [access.place for access in accesses_of(sent)] == [Range(HOME, HOME + 10)]
    assert [place for _, place in buffer_tensors(sent)] == [
        Range(ADDRESS + 10, ADDRESS + 100),
        Range(ADDRESS + 99, ADDRESS + 100),
    ]
    plain = (tensor(ADDRESS + 10, 90, in_buffer=False), tensor(ADDRESS + 99, 0, in_buffer=False))
    assert sides.gateway.opened(sent) == blob(shared, *plain)


class Port:
    """A stand-in for the port to the parent, with one frame to receive."""

    def __init__(self, data: bytes) -> None:
        self.frames = deque([(FrameKind.TASK, 1, 3, bytes(32), 0, 1, -1, 0, data)])
        self.answers: list[tuple[int, Outcome, bytes]] = []
        self.ends: list[bool] = []

    def receive_plain(self, _: int) -> tuple[int, int, bytes, bool]:
        return 1, 0, b"", bool(self.frames)

    def receive(self, limit: int) -> list[Any]:
        return [self.frames.popleft() for _ in range(min(limit, len(self.frames)))]

    def ended(self, succeeded: bool, count: int = 1) -> None:
        self.ends += [succeeded] * count

    def left(self, count: int) -> None:
        """Do nothing: the test does not need the count."""

    def answer(self, *answer: Any) -> bool:
        self.answers.append(answer)
        return True


@pytest.mark.parametrize("is_live", [False, True])
def test_a_task_of_a_lost_buffer_fails_before_it_is_sent(is_live: bool) -> None:
    sides = Sides()
    if is_live:
        sides.ask("allocate_buffer", ADDRESS, 100)
    port = Port(blob(tensor(ADDRESS, 100)))
    frames = FrameRelay(
        port, 0, HomeMemory(sides.space, NBYTES), sides.session, sides.relay, 10_000
    )
    frames.step()
    assert bool(sides.to_host.control) is is_live
    if not is_live:
        ((number, outcome, failure),) = port.answers
        assert (number, outcome, port.ends) == (1, Outcome.FAILED, [False])
        assert isinstance(Failure.unpack(failure).exception, BufferLostError)
        assert frames.is_idle


def test_the_bytes_of_requests() -> None:
    """A request is a MessagePack map: the operation first, then the members by name."""
    operation, address = b"\xa9operation", b"\xa7address"
    number = b"\xcf" + ADDRESS.to_bytes(8, "big")
    nbytes = b"\xa6nbytes\x0a"
    expected = {
        "allocate_buffer": b"\x83" + operation + b"\xafallocate_buffer" + address + number + nbytes,
        "free_buffer": b"\x82" + operation + b"\xabfree_buffer" + address + number,
        "write_buffer": b"\x83" + operation + b"\xacwrite_buffer" + address + number + nbytes,
        "read_buffer": b"\x83" + operation + b"\xabread_buffer" + address + number + nbytes,
    }
    for name, packed in expected.items():
        arguments = (ADDRESS,) if name == "free_buffer" else (ADDRESS, 10)
        assert encoded(to_request(name, arguments)) == packed
    token, key = b"\xa5token\xc4\x10" + bytes(16), b"\xa3key"
    copied = b"\xa6target" + number + b"\xa6source\x07" + nbytes
    received = address + number + nbytes + token + b"\xa8lease_ns\x07" + key
    between: dict[str, tuple[tuple[Any, ...], bytes]] = {
        "copy_buffer": ((ADDRESS, 7, 10), b"\x84" + operation + b"\xabcopy_buffer" + copied),
        "receive_buffer": (
            (ADDRESS, 10, bytes(16), 7, None),
            b"\x86" + operation + b"\xaereceive_buffer" + received + b"\xc0",
        ),
        "send_buffer": (
            (ADDRESS, 10, bytes(16), 7, "k", "h"),
            b"\x87" + operation + b"\xabsend_buffer" + received + b"\xa1k\xa4host\xa1h",
        ),
        "cancel_receive": ((bytes(16),), b"\x82" + operation + b"\xaecancel_receive" + token),
    }
    for name, (values, packed) in between.items():
        assert encoded(to_request(name, values)) == packed
