"""Random graphs over a few arrays, and their result when tasks run one after the other.

Each task writes numbers that depend on its inputs, so that a wrong order changes the result.
"""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass, field
from typing import Any

from task_arguments import given

from pto_core import TaskArgs, TensorArgType

TASKS = 120
ARRAYS = 7
WORDS = 64
PRIME = 1_000_003
DIES = 2
"""How a task fails: 2, its child dies; 1, it raises an exception; 0, it succeeds."""

IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT


def work(args: Any) -> None:
    """Fail, die, or write to every output a number that depends on the inputs and the task."""
    number, fails, writes = (args.scalar(i) for i in range(3))
    if fails == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    if fails:
        raise ValueError(f"task {number}")
    compute(number, writes, [args.tensor(i) for i in range(args.tensor_count)])


def compute(number: int, writes: int, arrays: list[Any]) -> None:
    """Write to each output a number that depends on the inputs.

    Bit 2i of `writes`: array i is written. Bit 2i + 1: the task also reads it.
    """
    value = number
    for index, array in enumerate(arrays):
        if not writes >> 2 * index & 1 or writes >> 2 * index & 2:
            value = (value * 31 + int(array[0]) + int(array[-1])) % PRIME
    for index, array in enumerate(arrays):
        if writes >> 2 * index & 1:
            array[:] = value + index


@dataclass
class Member:
    arrays: list[int]
    tags: list[TensorArgType]

    @property
    def writes(self) -> int:
        bits = {IN: 2, OUT: 1, INOUT: 3}
        return sum(bits[tag] << 2 * index for index, tag in enumerate(self.tags))

    def args(self, memory: Any, number: int, fails: int) -> TaskArgs:
        arrays = (memory[array] for array in self.arrays)
        scalars = (number, int(fails), self.writes)
        return given(*zip(arrays, self.tags, strict=True), scalars=scalars)


@dataclass
class Step:
    """A task with its members, or the start (1) or end (-1) of a scope."""

    members: list[Member] = field(default_factory=list)
    fails: int = 0
    scope: int = 0


def program(chosen: random.Random, children: int, failures: float) -> list[Step]:
    steps, depth = [], 0
    for _ in range(TASKS):
        if chosen.random() < 0.05:
            steps.append(Step(scope=1))
            depth += 1
        elif depth and chosen.random() < 0.08:
            steps.append(Step(scope=-1))
            depth -= 1
        count = chosen.randint(2, children) if children > 1 and chosen.random() < 0.2 else 1
        free = chosen.sample(range(ARRAYS), ARRAYS)
        members = []
        for _ in range(count):
            arrays = [free.pop() for _ in range(min(len(free), chosen.randint(1, 2)))]
            if arrays:
                members.append(Member(arrays, [chosen.choice([IN, OUT, INOUT]) for _ in arrays]))
        steps.append(Step(members, fails=int(len(members) == 1 and chosen.random() < failures)))
    return steps + [Step(scope=-1)] * depth


def sequential(steps: list[Step], memory: Any) -> tuple[set[int], set[int]]:
    """Run one task after the other; return the failed and the poisoned tasks."""
    spoilt: set[int] = set()
    failed: set[int] = set()
    poisoned: set[int] = set()
    number = -1
    for step in steps:
        if step.scope:
            continue
        number += 1
        uses = [pair for m in step.members for pair in zip(m.arrays, m.tags, strict=True)]
        is_poisoned = any(array in spoilt for array, tag in uses if tag != OUT)
        written = {array for array, tag in uses if tag != IN}
        if is_poisoned or step.fails:
            (poisoned if is_poisoned else failed).add(number)
            spoilt |= written
            continue
        spoilt -= written
        for member in step.members:
            compute(number, member.writes, [memory[array] for array in member.arrays])
    return failed, poisoned


def submit_all(
    orch: Any, handle: Any, steps: list[Step], memory: Any, chosen: random.Random
) -> None:
    number = -1
    scopes: list[Any] = []
    for step in steps:
        if step.scope == 1:
            scopes.append(orch.scope())
            scopes[-1].__enter__()
            orch.alloc((chosen.randint(1, 3000),), "uint8")
        elif step.scope == -1:
            scopes.pop().__exit__(None, None, None)
        else:
            number += 1
            made = [m.args(memory, number, step.fails) for m in step.members]
            if len(made) == 1:
                orch.submit_sub(handle, made[0], retries=chosen.choice([0, 0, 0, 1]))
            else:
                orch.submit_sub_group(handle, made)
