"""Random programs on shared memory, for tests of remote hosts, and their sequential execution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pto_core import TensorArgType
from pto_transport_zmq.remote.address_space import PIECE_BYTES, Access, AddressSpace, Range

INPUT, OUTPUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
EXISTING, NO_DEP = TensorArgType.OUTPUT_EXISTING, TensorArgType.NO_DEP
BASE = 7 * PIECE_BYTES - 600  # chosen so that ranges cross a boundary of pieces
SIZE = 1200
PARTS = [slice(0, None, 2), slice(1, None, 2), slice(0, 9), slice(9, None), slice(3, 200, 7)]
HOME = -1
"""The host of tasks that run in home memory: local children, and the program itself."""


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


@dataclass(eq=False)
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


class World(Protocol):
    """A parent with remote hosts."""

    home: Bytes

    def run(self, program: list[Task]) -> None:
        """Run a program in a random order that its dependencies permit."""


def random_places(chance: random.Random) -> list[Range]:
    """Return ranges of any size; small ranges often lie inside others."""
    places = [_random_range(chance, BASE, BASE + SIZE, 400)]
    for _ in range(chance.randrange(4)):
        outer = chance.choice(places)
        if chance.random() < 0.6 and outer.nbytes > 4:
            places.append(_random_range(chance, outer.start, outer.end, 60))
        else:
            places.append(_random_range(chance, BASE, BASE + SIZE, 400))
    return places


def _random_range(chance: random.Random, first: int, last: int, nbytes: int) -> Range:
    start = chance.randrange(first, last - 1)
    if first == BASE and chance.random() < 0.3:
        start = BASE + SIZE // 2 - chance.randrange(1, 40)
    return Range(start, chance.randint(start + 1, min(last, start + nbytes)))


def random_program(chance: random.Random, places: list[Range]) -> list[Task]:
    program: list[Task] = []
    for number in range(chance.randint(2, 20)):
        accesses, masks = [], []
        for _ in range(chance.choice([0, 0, 1, 2, 3])):
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
    # A NO_DEP access reads undetermined values, so a task with one must not write at all.
    for task in program:
        if any(access.tag is NO_DEP for access in task.accesses):
            task.accesses = [a._replace(tag=NO_DEP, is_new=False) for a in task.accesses]
            task.masks = [np.zeros(a.place.nbytes, bool) for a in task.accesses]
            task.fails = False
    return program


def run_random_programs(world: World, chance: random.Random) -> None:
    """Run three random programs; after each, home memory has the sequential result.

    The second and third program also read content that failed tasks have left.
    """
    places, expected = random_places(chance), Bytes()
    for _ in range(3):
        program = random_program(chance, places)
        run_in_sequence(program, expected)
        world.run(program)
        assert np.array_equal(world.home.content, expected.content)


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
