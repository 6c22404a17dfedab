"""Home and shadow memory: random programs on two remote hosts equal the sequential program."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from pto_core import TensorArgType
from pto_core.remote.accesses import Access
from pto_core.remote.address_space import PIECE_BYTES, AddressSpace, Range
from pto_core.remote.home_memory import Admission, HomeMemory
from pto_core.remote.shadow_memory import ShadowMemory

INPUT, OUTPUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
EXISTING, NO_DEP = TensorArgType.OUTPUT_EXISTING, TensorArgType.NO_DEP
BASE = 7 * PIECE_BYTES - 600  # ranges cross a boundary of pieces
SIZE = 1200
PARTS = [slice(0, None, 2), slice(1, None, 2), slice(0, 9), slice(9, None), slice(3, 200, 7)]
HOME = -1
"""The place of tasks that run at home: local children, and the program itself."""


class Bytes:
    """Memory of one host at the addresses from BASE."""

    def __init__(self, content: bytes = bytes(SIZE)) -> None:
        self.content = np.frombuffer(bytearray(content), np.uint8)
        self.space = AddressSpace([(BASE, memoryview(self.content))])

    def at(self, place: Range) -> np.ndarray:
        return self.content[place.start - BASE : place.end - BASE]

    def release(self, place: Range) -> None:
        start, end = max(place.start, BASE), min(place.end, BASE + SIZE)
        self.at(Range(start, end))[:] = 0


@dataclass
class Task:
    number: int
    host: int
    accesses: list[Access]
    masks: list[np.ndarray]
    fails: bool = False
    is_constant: bool = False
    after: set[int] = field(default_factory=set)

    def run(self, memory: Bytes) -> None:
        seen = [memory.at(a.place) for a in self.accesses if a.tag in (INPUT, INOUT, NO_DEP)]
        total = self.number + sum(int(one.sum()) for one in seen)
        for access, mask in zip(self.accesses, self.masks, strict=True):
            part = memory.at(access.place)
            if self.fails and access.is_written:
                part[mask] = 251
            elif access.is_written:
                before = part.astype(int) if access.tag is INOUT else np.arange(len(part))
                part[mask] = 7 if self.is_constant else ((before + total) % 251)[mask]

    def reads(self) -> set[int]:
        return {b for a in self.accesses if a.tag in (INPUT, INOUT) for b in range(*a.place)}

    def writes(self) -> set[int]:
        return {
            int(b)
            for a, mask in zip(self.accesses, self.masks, strict=True)
            for b in np.flatnonzero(mask) + a.place.start
        }

    def touches(self) -> set[int]:
        return {b for a in self.accesses for b in range(*a.place)}


class Host:
    """A remote host: its relay's home memory, the way there, its gateway's shadow, its Worker."""

    def __init__(self, home: Bytes, quota: int) -> None:
        self.memory = Bytes(bytes([99]) * SIZE)  # what earlier sessions left does not matter
        self.home = HomeMemory(home.space, quota)
        self.shadow = ShadowMemory(self.memory.space, self.memory.release)
        self.queue: deque[Task] = deque()
        self.arriving: deque[tuple[Task, Admission]] = deque()
        self.begun: deque[Task] = deque()
        self.ended: deque[tuple[Task, bool]] = deque()


class World:
    """Runs a program in a random order that its dependencies permit."""

    def __init__(self, chance: random.Random, quota: int) -> None:
        self.chance = chance
        self.home = Bytes()
        self.hosts = [Host(self.home, quota) for _ in range(2)]

    def run(self, program: list[Task]) -> None:
        self.program = program
        self.done: set[int] = set()
        self.failed: set[int] = set()
        for task in program:
            if task.host != HOME:
                self.hosts[task.host].queue.append(task)
        steps = [self.step_home]
        for host in self.hosts:
            for step in (self.admit, self.arrive, self.execute, self.finish):
                steps.append(lambda step=step, host=host: step(host))
        while len(self.done) < len(self.program):
            self.chance.shuffle(steps)
            assert any(step() for step in steps), "no step is possible"

    def is_poisoned(self, task: Task) -> bool:
        return bool(task.after & self.failed)

    def step_home(self) -> bool:
        for task in self.program:
            if task.host == HOME and task.number not in self.done and task.after <= self.done:
                if self.is_poisoned(task):
                    self.failed.add(task.number)
                else:
                    task.run(self.home)
                self.done.add(task.number)
                return True
        return False

    def admit(self, host: Host) -> bool:
        if not host.queue:
            return False
        task = host.queue[0]
        own = {one.number for one in self.program if one.host == task.host}
        is_new = any(access.is_new for access in task.accesses)
        needed = task.after if is_new else task.after - own
        if not needed <= self.done:
            return False
        admission = host.home.admit(task.number, task.accesses)
        if admission is None:
            return False
        host.queue.popleft()
        host.arriving.append((task, admission))
        return True

    def arrive(self, host: Host) -> bool:
        if not host.arriving:
            return False
        task, admission = host.arriving[0]
        for block in admission.evicted:
            host.shadow.evict(block)
        for push in admission.pushes:
            host.shadow.write(push)
        host.arriving[0] = (task, Admission((), ()))
        if not host.shadow.begin(task.number, task.accesses):
            return False
        host.arriving.popleft()
        host.begun.append(task)
        return True

    def execute(self, host: Host) -> bool:
        if not host.begun:
            return False
        task = host.begun.popleft()
        succeeds = not (task.fails or self.is_poisoned(task))
        if not self.is_poisoned(task):
            task.run(host.memory)
        if not succeeds:
            self.failed.add(task.number)
        host.ended.append((task, succeeds))
        return True

    def finish(self, host: Host) -> bool:
        if not host.ended:
            return False
        task, succeeds = host.ended.popleft()
        if succeeds:
            host.home.finish(task.number, host.shadow.finish(task.number))
        else:
            host.shadow.drop(task.number)
            host.home.drop(task.number)
        self.done.add(task.number)
        return True


def random_range(chance: random.Random) -> Range:
    start = BASE + chance.randrange(SIZE - 1)
    if chance.random() < 0.3:
        start = BASE + SIZE // 2 - chance.randrange(1, 40)
    return Range(start, chance.randint(start + 1, min(BASE + SIZE, start + 400)))


def random_program(chance: random.Random, places: list[Range]) -> list[Task]:
    program: list[Task] = []
    for number in range(chance.randint(2, 20)):
        accesses, masks = [], []
        for _ in range(chance.randint(1, 3)):
            place = chance.choice(places)
            if any(place.overlaps(other.place) for other in accesses):
                continue
            tag = chance.choice([INPUT, INPUT, OUTPUT, INOUT, EXISTING, NO_DEP])
            is_new = tag is OUTPUT and chance.random() < 0.5
            mask = np.zeros(place.nbytes, bool)
            if tag is OUTPUT:
                mask[:] = True
            elif tag in (INOUT, EXISTING):
                mask[chance.choice(PARTS)] = True
            accesses.append(Access(place, tag, is_new))
            masks.append(mask)
        host = chance.choice([HOME, 0, 0, 1, 1])
        fails = host != HOME and chance.random() < 0.1
        task = Task(number, host, accesses, masks, fails, chance.random() < 0.3)
        add_dependencies(task, program)
        program.append(task)
    # A task that reads without a dependency reads any value: it must not write.
    for task in program:
        if any(access.tag is NO_DEP for access in task.accesses):
            task.accesses = [a._replace(tag=NO_DEP, is_new=False) for a in task.accesses]
            task.masks = [np.zeros(a.place.nbytes, bool) for a in task.accesses]
            task.fails = False
    return program


def add_dependencies(task: Task, earlier: Sequence[Task]) -> None:
    is_new = any(access.is_new for access in task.accesses)
    for other in earlier:
        if is_new:  # a heap ring allocates only memory that no task uses
            conflicts = other.touches() & task.touches()
        else:
            conflicts = (
                other.writes() & (task.reads() | task.writes()) | other.reads() & task.writes()
            )
        new_before = any(access.is_new for access in other.accesses)
        if conflicts or (new_before and other.touches() & task.touches()):
            task.after.add(other.number)


def run_in_sequence(program: list[Task], memory: Bytes) -> None:
    failed = set()
    for task in program:
        if task.fails or task.after & failed:
            failed.add(task.number)
        else:
            task.run(memory)


@pytest.mark.parametrize("part", range(4))
def test_random_programs_give_the_sequential_result(part: int) -> None:
    for number in range(50):
        seed = part * 1000 + number
        chance = random.Random(seed)
        places = [random_range(chance) for _ in range(chance.randint(1, 4))]
        world, expected = World(chance, chance.choice([1, 2, 3]) * PIECE_BYTES), Bytes()
        for _ in range(3):  # a run reads what tasks that failed in the run before have left
            program = random_program(chance, places)
            run_in_sequence(program, expected)
            try:
                world.run(program)
            except Exception as error:
                raise AssertionError(f"seed={seed}") from error
            assert np.array_equal(world.home.content, expected.content), f"seed={seed}"
