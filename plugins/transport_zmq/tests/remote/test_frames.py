"""Relay and gateway: random programs on two remote hosts, over channels that delay messages."""

from __future__ import annotations

import random
import struct
from collections import deque

import numpy as np
import pytest
from coherent_programs import (
    BASE,
    HOME,
    Bytes,
    Task,
    run_random_programs,
)

from pto_core import DataType, TensorArgType
from pto_core.interfaces.frame import AnswerKind, FrameKind, Outcome
from pto_core.worker.failures import Failure
from pto_transport_zmq.remote.address_space import PIECE_BYTES, Access, Range
from pto_transport_zmq.remote.buffers import BufferGateway, BufferRelay
from pto_transport_zmq.remote.frames import FrameGateway, FrameRelay
from pto_transport_zmq.remote.memory import HomeMemory, ShadowMemory
from pto_transport_zmq.remote.messages import (
    EndedFrame,
    MessageKind,
    PlainTasks,
    TaskFrame,
    pack_ended,
    pack_task,
    pack_tasks,
    unpack_tasks,
)
from pto_transport_zmq.remote.peer_copies import PeerCopies
from pto_transport_zmq.remote.wire import Message

QUEUE = 3  # the most frames in a queue, and the most messages without an acknowledgement
INLINE_BYTES = 100
PENDING, MET, FAILED = range(3)


def blob_of(task: Task) -> bytes:
    tensors = b"".join(
        struct.pack(
            "<Q6IBBB5x",
            access.place.start,
            *(access.place.nbytes, 0, 0, 0, 0),
            1,
            DataType.UINT8,
            0,
            access.tag + 1 + 8 * access.is_new,
        )
        for access in task.accesses
    )
    return struct.pack("<ii", len(task.accesses), 0) + tensors


class Way:
    """One direction of a session: two channels that delay messages.

    A control message waits for the bulk messages that it requires.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.control: deque[tuple[Message, int]] = deque()
        self.bulk: deque[Message] = deque()
        self.sent = [0, 0]
        self.delivered = self.unconsumed = 0

    def send(self, kind, parts, after_bulk=0) -> int | None:
        if len(self.control) == QUEUE:
            return None
        self.sent[0] += 1
        self.control.append((Message(0, kind, self.sent[0], parts), after_bulk))
        return self.sent[0]

    def send_bulk(self, kind, parts) -> int | None:
        if self.unconsumed == QUEUE:
            return None
        self.unconsumed += 1
        self.sent[1] += 1
        self.bulk.append(Message(1, kind, self.sent[1], parts))
        return self.sent[1]

    def deliver(self) -> Message | None:
        has_control = self.control and self.control[0][1] <= self.delivered
        if self.bulk and (not has_control or self.chance.random() < 0.7):
            self.delivered += 1
            return self.bulk.popleft()
        return self.control.popleft()[0] if has_control else None


class Sending:
    """One side of a session: it sends messages, and grants credits for those it received."""

    def __init__(self, out: Way, back: Way) -> None:
        self.send, self.send_bulk, self._back = out.send, out.send_bulk, back

    def consumed(self, count: int) -> None:
        self._back.unconsumed -= count
        assert self._back.unconsumed >= 0


class ParentSide:
    """The queue between the parent and the relay, and the record in the progress table."""

    def __init__(self, world: World, child: int) -> None:
        self.world, self.child = world, child
        self.queue: deque[tuple] = deque()
        self.tasks: list[Task] = []  # the frame with count n has index n - 1
        self.outcomes: list[bool] = []
        self.answered = self.may_have_begun = 0

    @property
    def completed(self) -> int:
        return len(self.outcomes)

    def submit(self, task: Task, required: Task | None) -> bool:
        if len(self.queue) == QUEUE:
            return False
        self.tasks.append(task)
        child, count = (-1, 0) if required is None else self.world.count_of(required)
        frame = (FrameKind.TASK, len(self.tasks), task.number, bytes(32), 0, 1, child, count)
        self.queue.append((*frame, blob_of(task)))
        return True

    def receive_plain(self, _: int) -> tuple[int, int, bytes, bool]:
        """Return the tasks at the start of the queue that use no memory."""
        count = len(self.tasks) - len(self.queue) + 1
        packed = []
        while self.queue and self.queue[0][6] < 0 and self.queue[0][-1][:4] == bytes(4):
            _, _, number, callable_, config, flags, _, _, data = self.queue.popleft()
            packed.append(pack_task(TaskFrame(0, number, 0, config, flags, callable_, data)))
        return count, len(packed), b"".join(packed), bool(self.queue)

    def receive(self, limit: int) -> list[tuple]:
        return [self.queue.popleft() for _ in range(min(limit, len(self.queue)))]

    def requirement(self, _: int, child: int, count: int) -> int:
        outcomes = self.world.hosts[child].parent_side.outcomes
        return PENDING if len(outcomes) < count else MET if outcomes[count - 1] else FAILED

    def left(self, count: int) -> None:
        self.may_have_begun = max(self.may_have_begun, count)

    def ended(self, succeeded: bool, count: int = 1) -> None:
        self.outcomes += [succeeded] * count

    def answer(self, count: int, outcome: Outcome, data: bytes) -> bool:
        if self.world.chance.random() < 0.2:
            return False
        assert count <= len(self.outcomes)
        for number in range(self.answered, count):
            succeeded = number < count - 1 or outcome is Outcome.SUCCEEDED
            assert self.outcomes[number] is succeeded
            assert not succeeded or number < self.may_have_begun
            task = self.tasks[number]
            self.world.done.add(task.number)
            if not succeeded:
                self.world.failed.add(task.number)
        if outcome is Outcome.FAILED:
            assert "planned" in Failure.unpack(data).message
        self.answered = count
        return True


class WorkerSide:
    """The queue between the gateway and the Worker, and the Worker itself."""

    def __init__(self, world: World, memory: Bytes) -> None:
        self.world, self.memory = world, memory
        self.queue: deque[tuple[int, int]] = deque()
        self.outcomes: list[bool] = []
        self.answers: deque[tuple] = deque()
        self.is_ahead = True

    @property
    def started(self) -> int:
        return len(self.outcomes) + bool(self.queue)

    started_age_ns = 1

    def submit(self, kind, number, callable_, config, flags, required, data) -> bool:
        assert (kind, callable_, config, flags) == (FrameKind.TASK, bytes(32), 0, 1)
        assert required <= len(self.outcomes) + len(self.queue)
        if len(self.queue) == QUEUE:
            return False
        self.queue.append((number, required))
        self.world.early += bool(required > len(self.outcomes))
        return True

    def submit_plain(self, packed: bytes, offset: int) -> tuple[int, int]:
        nbytes = len(pack_task(TaskFrame(0, 0, 0, 0, 1, bytes(32), bytes(8))))
        count = 0
        while offset < len(packed) and len(self.queue) < QUEUE:
            body = pack_tasks(1, 1, [packed[offset : offset + nbytes]])
            (tasks,) = unpack_tasks(body)
            assert isinstance(tasks, PlainTasks)
            (number,) = struct.unpack_from("<Q", tasks.packed)
            self.queue.append((number, 0))
            self.world.plain += 1
            count, offset = count + 1, offset + nbytes
        return count, count * nbytes

    def run(self) -> bool:
        if not self.queue:
            return False
        number, required = self.queue.popleft()
        task = self.world.program[number]
        count = len(self.outcomes) + 1
        if required and not self.outcomes[required - 1]:
            self.outcomes.append(False)
            self.answers.append((AnswerKind.COMPLETED, count, Outcome.SKIPPED, b""))
            return True
        task.run(self.memory)
        self.outcomes.append(not task.fails)
        if task.fails:
            failure = Failure.of(ValueError("planned")).pack()
            self.answers.append((AnswerKind.COMPLETED, count, Outcome.FAILED, failure))
        elif self.world.chance.random() < 0.5:
            self.answers.append((AnswerKind.COMPLETED, count, Outcome.SUCCEEDED, b""))
        return True

    def poll(self) -> list[tuple]:
        answers, self.answers = list(self.answers), deque()
        return answers

    def succeeded(self, count: int) -> int:
        while count < len(self.outcomes) and self.outcomes[count]:
            count += 1
        return count


class Host:
    """A remote host with its relay."""

    def __init__(self, world: World, child: int, quota: int, pieces_per_step: int) -> None:
        self.world = world
        self.to_host, self.to_home = Way(world.chance), Way(world.chance)
        self.parent_side = ParentSide(world, child)
        memory = Bytes()
        self.worker_side = WorkerSide(world, memory)
        to_host, to_home = (
            Sending(self.to_host, self.to_home),
            Sending(self.to_home, self.to_host),
        )
        self.relay = FrameRelay(
            self.parent_side,
            child,
            HomeMemory(world.home.space, quota, pieces_per_step),
            to_host,
            BufferRelay(world.home.space, to_host),
            1000,
            INLINE_BYTES,
        )
        self.gateway = FrameGateway(
            self.worker_side,
            ShadowMemory(memory.space, memory.release, pieces_per_step),
            to_home,
            BufferGateway(memory.space, memory.release, to_home, PeerCopies(None, memory.space)),
            lambda request: request,
            None,
            INLINE_BYTES,
        )

    def steps(self) -> list:
        return [
            lambda: self.relay.step(),
            lambda: self.gateway.step(0),
            lambda: self.move(self.to_host, self.gateway),
            lambda: self.move(self.to_home, self.relay),
            lambda: self.worker_side.run(),
        ]

    def move(self, way: Way, side: FrameRelay | FrameGateway) -> bool:
        message = way.deliver()
        if message is not None:
            side.handle(message)
        return message is not None


class World:
    """A parent with two remote children, which runs a program in a random order of steps."""

    def __init__(self, chance: random.Random, quota: int, pieces_per_step: int = 16) -> None:
        self.chance = chance
        self.home = Bytes()
        self.program: list[Task] = []
        self.plain = 0  # number of frames without memory that reached a Worker
        self.early = 0  # number of frames that reached a Worker before the frames that they require
        self.hosts = [Host(self, child, quota, pieces_per_step) for child in range(2)]

    def run(self, program: list[Task]) -> None:
        self.program = program
        self.done: set[int] = set()
        self.failed: set[int] = set()
        queues = [deque(task for task in program if task.host == host) for host in range(2)]
        steps = [step for host in self.hosts for step in host.steps()]
        steps += [self.run_home, *(lambda queue=queue: self.submit(queue) for queue in queues)]
        for _ in range(3000 * len(program)):
            if len(self.done) == len(program):
                return
            self.chance.choice(steps)()
        raise AssertionError("the program does not end")

    def count_of(self, task: Task) -> tuple[int, int]:
        tasks = self.hosts[task.host].parent_side.tasks
        return task.host, max(n for n, one in enumerate(tasks, 1) if one is task)

    def run_home(self) -> None:
        for task in self.program:
            if task.host == HOME and task.number not in self.done and task.after <= self.done:
                if task.after & self.failed:
                    self.failed.add(task.number)
                else:
                    task.run(self.home)
                self.done.add(task.number)

    def submit(self, queue: deque[Task]) -> None:
        """Send the next task, if all its dependencies are met or one is pending and was sent."""
        if not queue:
            return
        task = queue[0]
        left = task.after - self.done
        if task.after & self.failed:  # the parent never sends a poisoned task
            if not left:
                queue.popleft()
                self.failed.add(task.number)
                self.done.add(task.number)
            return
        is_new = any(access.is_new for access in task.accesses)
        if len(left) > 1 or (left and is_new):
            return
        required = self.program[next(iter(left))] if left else None
        if required is not None:
            sent = required.host != HOME and required in self.hosts[required.host].parent_side.tasks
            if not sent:
                return
        if self.hosts[task.host].parent_side.submit(task, required):
            queue.popleft()


@pytest.mark.parametrize("part", range(4))
def test_random_programs_give_the_sequential_result(part: int) -> None:
    early = plain = 0
    for number in range(20):
        seed = part * 1000 + number
        chance = random.Random(seed)
        print("seed", seed)
        world = World(chance, chance.choice([1, 2, 3]) * PIECE_BYTES, chance.choice([1, 2, 16]))
        run_random_programs(world, chance)
        early += world.early
        plain += world.plain
    assert early > 5
    assert plain > 5


def test_a_frame_that_waits_for_an_earlier_write_starts_in_the_step_that_ends_it() -> None:
    world = World(random.Random(1), PIECE_BYTES)
    host = world.hosts[0]
    place = Range(BASE, BASE + 100)
    access, mask = Access(place, TensorArgType.INOUT, is_new=False), np.ones(100, bool)
    world.program = [Task(number, 0, [access], [mask]) for number in range(2)]
    frames = [
        pack_task(TaskFrame(0, one.number, 0, 0, 1, bytes(32), blob_of(one)))
        for one in world.program
    ]
    host.gateway.handle(Message(0, MessageKind.TASKS, 1, pack_tasks(1, 2, frames)))
    host.gateway.step(0)
    assert [number for number, _ in host.worker_side.queue] == [0]
    host.worker_side.run()
    host.gateway.step(0)
    assert [number for number, _ in host.worker_side.queue] == [1]


class CountedMemory(HomeMemory):
    """Home memory that counts how many frames it was asked to admit."""

    asked = 0

    def admit(self, frame, accesses):
        self.asked += 1
        return super().admit(frame, accesses)


def test_a_frame_that_is_not_admitted_is_compared_again_only_after_an_end() -> None:
    world = World(random.Random(1), PIECE_BYTES)
    host = world.hosts[0]
    home = CountedMemory(world.home.space, PIECE_BYTES)
    sending = Sending(host.to_host, host.to_home)
    buffers = BufferRelay(world.home.space, sending)
    relay = FrameRelay(host.parent_side, 0, home, sending, buffers, 1000, INLINE_BYTES)
    place, mask = Range(BASE, BASE + 50), np.ones(50, bool)
    access = Access(place, TensorArgType.INOUT, is_new=False)
    world.program = [Task(number, 0, [access], [mask]) for number in range(2)]
    world.done = set()
    for number, task in enumerate(world.program):
        world.home.at(place)[:] = number
        host.parent_side.submit(task, None)
        for _ in range(5):
            relay.step()
    assert home.asked == 2
    ended = EndedFrame(1, Outcome.SUCCEEDED)
    relay.handle(Message(0, MessageKind.ENDED, 1, pack_ended([ended])))
    relay.step()
    assert home.asked == 3
