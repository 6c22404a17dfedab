"""Home and shadow memory: a random program on two remote hosts has the sequential result."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

import pytest
from coherent_programs import (
    HOME,
    Bytes,
    Task,
    run_random_programs,
)

from pto_transport_zmq.remote.address_space import PIECE_BYTES
from pto_transport_zmq.remote.memory import HomeMemory, Push, ShadowMemory


class Host:
    """A remote host: the relay's home memory, the connection, the gateway's shadow, the Worker."""

    def __init__(self, home: Bytes, quota: int) -> None:
        self.memory = Bytes()
        self.home = HomeMemory(home.space, quota)
        self.shadow = ShadowMemory(self.memory.space, self.memory.release)
        self.queue: deque[Task] = deque()
        self.arriving: deque[tuple[Task, Sequence[int], list[Push]]] = deque()
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
        pushes = [host.home.content(piece) for piece in admission.stale]
        host.arriving.append((task, admission.evicted, pushes))
        return True

    def arrive(self, host: Host) -> bool:
        if not host.arriving:
            return False
        task, evicted, pushes = host.arriving[0]
        for block in evicted:
            host.shadow.evict(block)
        for push in pushes:
            host.shadow.write(push)
        host.arriving[0] = (task, (), [])
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
            for result in host.shadow.results(task.number):
                host.home.write(task.number, result)
            host.home.finish(task.number)
        else:
            host.home.drop(task.number)
        host.shadow.end(task.number)
        self.done.add(task.number)
        return True


@pytest.mark.parametrize("part", range(4))
def test_random_programs_give_the_sequential_result(part: int) -> None:
    for number in range(30):
        seed = part * 1000 + number
        chance = random.Random(seed)
        print("seed", seed)
        run_random_programs(World(chance, chance.choice([1, 2, 3]) * PIECE_BYTES), chance)
