"""Random graphs over arguments, constants and buffers of the heap rings, in nested scopes.

The expected result is that of a sequential run. To make this hold under "raw" hazards too, a task
overwrites a region only if it reads the previous value and no other task has read it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sequential_programs import IN, INOUT, OUT, WORDS, Member, compute, work

from pto_core import ContinuousTensor, DataType

ARGUMENTS, CONSTANTS = 20, 2
STEPS = 100
DEPTH = 3
BUFFERS = 3
"""The largest number of buffers of a scope, so small that the live buffers fit in any heap ring."""
RING_BYTES = 1 << 12


@dataclass
class Step:
    """A task with its members, the start (1) or end (-1) of a scope, or a new buffer."""

    members: list[Member] = field(default_factory=list)
    scope: int = 0
    buffer: int = -1
    is_output: bool = False
    """Whether the buffer is allocated by a task, as an output without an address."""
    retries: int = 0


@dataclass
class Place:
    """A piece of memory, and how the program has used it so far."""

    number: int
    is_written: bool = True
    is_read: bool = False

    def use(self, chosen: random.Random, hazards: str) -> Any:
        """Choose the tag with which the next task uses the memory."""
        if not self.is_written:
            tag = OUT
        elif hazards == "full":
            tag = chosen.choice([IN, OUT, INOUT])
        else:
            tag = IN if self.is_read else chosen.choice([IN, INOUT])
        self.is_written, self.is_read = True, tag == IN
        return tag


class Programmer:
    """Generates one program."""

    def __init__(self, seed: int, children: int, hazards: str) -> None:
        self._chosen = random.Random(seed)
        self._children = children
        self._hazards = hazards
        self._scopes = [[Place(number) for number in range(ARGUMENTS + CONSTANTS)]]
        self._allocated = [0]
        self._next = ARGUMENTS + CONSTANTS
        self._steps: list[Step] = []

    def program(self) -> list[Step]:
        for _ in range(STEPS):
            self._scope()
            if self._has_room() and self._chosen.random() < 0.2:
                self._steps.append(Step(buffer=self._buffer(is_written=False)))
            self._task()
        return self._steps + [Step(scope=-1)] * (len(self._scopes) - 1)

    def _scope(self) -> None:
        if len(self._scopes) <= DEPTH and self._chosen.random() < 0.3:
            self._scopes.append([])
            self._allocated.append(0)
            self._steps.append(Step(scope=1))
        elif len(self._scopes) > 1 and self._chosen.random() < 0.4:
            self._scopes.pop()
            self._allocated.pop()
            self._steps.append(Step(scope=-1))

    def _has_room(self) -> bool:
        return self._allocated[-1] < BUFFERS

    def _buffer(self, *, is_written: bool) -> int:
        self._scopes[-1].append(Place(self._next, is_written))
        self._allocated[-1] += 1
        self._next += 1
        return self._next - 1

    def _task(self) -> None:
        free = self._places()
        is_group = self._children > 1 and self._chosen.random() < 0.2
        members = [self._member(free) for _ in range(2 if is_group else 1)]
        step = Step(members, retries=self._chosen.choice([0, 0, 1]))
        if self._has_room() and self._chosen.random() < 0.3:
            step.buffer, step.is_output = self._buffer(is_written=True), True
            members[0].arrays.append(step.buffer)
            members[0].tags.append(OUT)
        self._steps.append(step)

    def _places(self) -> list[Place]:
        """Return all buffers in random order, mostly with those of the innermost scope at the end.

        The program takes buffers from the end, so most of its buffers have a short life, and scopes
        depend little on earlier scopes.
        """
        *outer, inner = self._scopes
        rest = [place for scope in outer for place in scope]
        self._chosen.shuffle(rest)
        free = rest + self._chosen.sample(inner, len(inner))
        if self._chosen.random() < 0.3:
            self._chosen.shuffle(free)
        return free

    def _member(self, free: list[Place]) -> Member:
        places = [free.pop() for _ in range(self._chosen.randint(1, 2))]
        tags = [place.use(self._chosen, self._hazards) for place in places]
        return Member([place.number for place in places], tags)


def work_with_delays(args: Any) -> None:
    """Delay some tasks, so that a missing edge or a buffer freed too early changes the result."""
    if args.scalar(0) % 6 == 0:
        time.sleep(2e-3)
    work(args)


def new_tensor() -> ContinuousTensor:
    """Return a tensor without an address; the task that has it as output allocates its buffer."""
    return ContinuousTensor.from_pointer(0, (WORDS,), DataType.INT64)


def submits(handle: Any, steps: list[Step], constants: Any) -> Any:
    """Return the graph function that submits the steps, on the tensors of its arguments."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        memory: dict[int, Any] = dict(enumerate([*args.tensors, *constants]))
        scopes: list[Any] = []
        number = -1
        for step in steps:
            if step.scope == 1:
                scopes.append(orch.scope())
                scopes[-1].__enter__()
            elif step.scope == -1:
                scopes.pop().__exit__(None, None, None)
            elif not step.members:
                memory[step.buffer] = orch.alloc((WORDS,), DataType.INT64)
            else:
                number += 1
                if step.is_output:
                    memory[step.buffer] = new_tensor()
                made = [member.args(memory, number, 0) for member in step.members]
                if len(made) == 1:
                    orch.submit_sub(handle, made[0], retries=step.retries)
                else:
                    orch.submit_sub_group(handle, made, retries=step.retries)

    return graph


def sequential(steps: list[Step], rows: Any) -> None:
    """Run one task after the other; ``rows`` are the arguments and constants."""
    memory: dict[int, Any] = dict(enumerate(rows))
    number = -1
    for step in steps:
        if step.buffer >= 0:
            memory[step.buffer] = np.zeros(WORDS, "int64")
        number += bool(step.members)
        for member in step.members:
            compute(number, member.writes, [memory[place] for place in member.arrays])
