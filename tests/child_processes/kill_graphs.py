"""Random graphs of tasks whose children are killed, and the checks of their results.

A program is data that a seed determines: a list of steps. :func:`submit_all` submits them;
:func:`in_order` computes them one after the other, for a given set of failed tasks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pto_core import TaskArgs, TensorArgType

ARRAYS, WORDS = 7, 64
"""The number of arrays that a graph receives. Its scopes allocate more, of one slab each."""
MOST_TASKS, MOST_MEMBERS = 150, 4
MOST_DEPTH = 3
"""The deepest nesting of scopes; up to it, no two open scopes share a heap ring."""
ALLOCATED_IN_A_SCOPE = 8
HEAP_RINGS = (1 << 14, 1 << 16)
PRIME = 1_000_003
IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
READ_BIT, WRITE_BIT = 2, 1
BITS = {IN: READ_BIT, OUT: WRITE_BIT, INOUT: READ_BIT | WRITE_BIT}
RUNS_WELL, ALWAYS_FAILS, FAILS_FIRST = range(3)


def compute(number: int, bits: int, arrays: list[Any]) -> None:
    """Write values that depend on the task and its inputs; `bits` has two bits for each array."""
    value = number
    for index, array in enumerate(arrays):
        if bits >> 2 * index & READ_BIT:
            value = (value * 31 + int(array[0]) + int(array[-1])) % PRIME
    for index, array in enumerate(arrays):
        if bits >> 2 * index & WRITE_BIT:
            array[: WORDS // 2] = value + index
            array[WORDS // 2 :] = value + index + 1


@dataclass
class Member:
    arrays: list[int]
    tags: list[TensorArgType]

    @property
    def bits(self) -> int:
        return sum(BITS[tag] << 2 * index for index, tag in enumerate(self.tags))


@dataclass
class Task:
    members: list[Member]
    is_sub: bool
    behaviour: int = RUNS_WELL
    retries: int = 0
    pins: list[int] = field(default_factory=list)
    is_hint: bool = False
    after: int | None = None
    """An earlier task, by index, that this task also waits for."""
    pause_us: int = 0


@dataclass
class Scope:
    """The start of a scope, or the end of the innermost scope."""

    begins: bool


@dataclass
class Allocate:
    array: int


Step = Task | Scope | Allocate


@dataclass
class Program:
    steps: list[Step] = field(default_factory=list)

    @property
    def tasks(self) -> list[Task]:
        return [step for step in self.steps if isinstance(step, Task)]


@dataclass(frozen=True)
class Children:
    """The numbers of children by kind. A task of a chip reads one array and writes one."""

    next_level: int
    subs: int
    are_chips: bool


class Generator:
    """Generates one program for a Worker with these children."""

    def __init__(self, chosen: random.Random, children: Children) -> None:
        self._chosen = chosen
        self._children = children
        self._program = Program()
        self._scopes: list[list[int]] = [[]]  # the arrays that each open scope has allocated
        self._arrays = ARRAYS
        self._failures = chosen.choice([0.0, 0.0, 0.03])
        self._retried = chosen.choice([0.0, 0.3, 1.0])
        self._pause_us = chosen.choice([0, 0, 100, 1000])

    def make(self) -> Program:
        for _ in range(self._chosen.choice([20, 60, MOST_TASKS])):
            self._change_scope()
            task = self._task()
            if task.members:
                self._program.steps.append(task)
        self._program.steps += [Scope(begins=False)] * (len(self._scopes) - 1)
        return self._program

    def _change_scope(self) -> None:
        chance = self._chosen.random()
        if chance < 0.06 and len(self._scopes) <= MOST_DEPTH:
            self._scopes.append([])
            self._program.steps.append(Scope(begins=True))
        elif chance < 0.12 and len(self._scopes) > 1:
            self._scopes.pop()
            self._program.steps.append(Scope(begins=False))

    def _task(self) -> Task:
        chosen, children = self._chosen, self._children
        is_sub = not children.next_level or (children.subs > 0 and chosen.random() < 0.6)
        there = children.subs if is_sub else children.next_level
        most = min(there, MOST_MEMBERS)
        count = chosen.randint(2, most) if most > 1 and chosen.random() < 0.2 else 1
        free = chosen.sample(self._named(), len(self._named()))
        made = [self._member(free, is_chip=children.are_chips and not is_sub) for _ in range(count)]
        task = Task([member for member in made if member.arrays], is_sub)
        if chosen.random() < self._retried:
            task.retries = chosen.choice([1, 2, 5])
        if chosen.random() < self._failures:
            task.behaviour = chosen.choice([ALWAYS_FAILS, FAILS_FIRST])
        if chosen.random() < 0.2:
            task.pins = chosen.sample(range(there), len(task.members))
            task.is_hint = len(task.members) == 1 and chosen.random() < 0.5
        earlier = len(self._program.tasks)
        if earlier and chosen.random() < 0.05:
            task.after = chosen.randrange(earlier)
        task.pause_us = chosen.choice([0, self._pause_us])
        return task

    def _named(self) -> list[int]:
        return [*range(ARRAYS), *(array for scope in self._scopes for array in scope)]

    def _member(self, free: list[int], *, is_chip: bool) -> Member:
        chosen = self._chosen
        tags = [IN, INOUT] if is_chip else chosen.choices([IN, OUT, INOUT], k=chosen.randint(1, 3))
        if len(free) < len(tags):
            return Member([], [])
        arrays = [free.pop() for _ in tags]
        if OUT in tags and chosen.random() < 0.2:
            self._allocate(arrays, tags.index(OUT))
        return Member(arrays, tags)

    def _allocate(self, arrays: list[int], place: int) -> None:
        """Make a task write to a new array, which later tasks of its scope can use."""
        if len(self._scopes[-1]) < ALLOCATED_IN_A_SCOPE:
            self._program.steps.append(Allocate(self._arrays))
            self._scopes[-1].append(self._arrays)
            arrays[place] = self._arrays
            self._arrays += 1


def submit_all(orch: Any, handles: tuple[Any, Any], program: Program, given: Any) -> list[int]:
    """Submit the program; ``handles`` are the callables for the next level and for SUB children."""
    arrays: dict[int, Any] = dict(enumerate(given))
    scopes: list[Any] = []
    tasks: list[Any] = []
    for step in program.steps:
        if isinstance(step, Task):
            tasks.append(submit(orch, handles, step, tasks, arrays))
        elif isinstance(step, Allocate):
            arrays[step.array] = orch.alloc((WORDS,), "int64")
        elif step.begins:
            scopes.append(orch.scope())
            scopes[-1].__enter__()
        else:
            scopes.pop().__exit__(None, None, None)
    return [task.task_slot for task in tasks]


def submit(
    orch: Any, handles: tuple[Any, Any], task: Task, earlier: list[Any], arrays: dict[int, Any]
) -> Any:
    made, number = [], len(earlier)
    for index, member in enumerate(task.members):
        args = TaskArgs()
        for array, tag in zip(member.arrays, member.tags, strict=True):
            args.add_tensor(arrays[array], tag)
        for scalar in (number, index, task.behaviour, member.bits, task.pause_us):
            args.add_scalar(scalar)
        made.append(args)
    if task.after is not None:
        made[-1].add_dep(earlier[task.after])
    handle = handles[task.is_sub]
    if len(made) > 1:
        call = orch.submit_sub_group if task.is_sub else orch.submit_next_level_group
        return call(handle, made, workers=task.pins or None, retries=task.retries)
    call = orch.submit_sub if task.is_sub else orch.submit_next_level
    pin = task.pins[0] if task.pins else -1
    return call(handle, made[0], worker=pin, hint=task.is_hint, retries=task.retries)


def in_order(program: Program, failed: set[int], memory: Any) -> tuple[set[int], set[int]]:
    """Apply the tasks to ``memory`` one after the other; the tasks ``failed`` fail.

    Return the poisoned tasks, and the arrays whose content is unknown at the end.
    """
    arrays: dict[int, Any] = dict(enumerate(memory))
    spoilt: set[int] = set()
    poisoned: set[int] = set()
    for number, task in enumerate(program.tasks):
        uses = [pair for m in task.members for pair in zip(m.arrays, m.tags, strict=True)]
        written = {array for array, tag in uses if tag != IN}
        for array, _ in uses:
            arrays.setdefault(array, np.zeros(WORDS, np.int64))
        has_failed_edge = task.after is not None and task.after in failed | poisoned
        if number in failed:
            spoilt |= written
        elif has_failed_edge or any(array in spoilt for array, tag in uses if tag != OUT):
            poisoned.add(number)
            spoilt |= written
        else:
            spoilt -= written
            for member in task.members:
                compute(number, member.bits, [arrays[array] for array in member.arrays])
    return poisoned, spoilt
