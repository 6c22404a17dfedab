"""Random programs of tasks over overlapping views, and their result when tasks run in sequence.

A program is data: steps, which :func:`run_in_order` executes on NumPy arrays and :func:`graph`
submits. :func:`random_program` returns a program whose result does not depend on the order that the
machine chooses. If the contract of its hazards orders two conflicting tasks, the program states no
edge; otherwise the later task names the earlier one in ``after``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_core import CoreCallable, In, InOut, KernelSource, NoDep, Out, OutExisting

BUFFERS = 3
ELEMENTS = 240
"""The number of elements of an external buffer. It has many divisors, so many shapes fit it."""
MOST_TASKS = 60
MOST_DEPTH = 5
WORDS = {"in": In, "out": Out, "inout": InOut, "out_existing": OutExisting, "no_dep": NoDep}
READS = {"in", "inout", "no_dep"}
WRITES = {"out", "inout", "out_existing"}
SHAPES = [(240,), (12, 20), (20, 12), (3, 80), (4, 6, 10), (1, 240), (16, 15)]
MIX = {
    core: CoreCallable(KernelSource(Path(__file__).with_name("mix.cpp")), core)
    for core in ("aic", "aiv")
}
Array = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class View:
    """A view of the buffer with this number: reshaped, then sliced, and perhaps transposed."""

    buffer: int
    shape: tuple[int, ...]
    box: tuple[slice, ...]
    transposed: bool = False

    def of(self, whole: Any) -> Any:
        """Apply the view to a NumPy array or a device array."""
        part = whole.reshape(self.shape)[self.box]
        return part.T if self.transposed else part

    def elements(self) -> list[int]:
        """Return the indices of the buffer's elements that the view contains."""
        size = int(np.prod(self.shape))
        return [int(place) for place in self.of(np.arange(size)).ravel()]


@dataclass
class Task:
    arguments: list[tuple[str, View]]
    salt: int
    core: str
    blocks: int = 0
    on_cluster: bool = False
    makes: int | None = None
    """The number of the buffer that the last argument allocates; None if there is no "out"."""
    after: list[int] = field(default_factory=list)
    """Earlier tasks that this task waits for, by their index among the tasks of the program."""


Step = Task | str
"""A task, or one of "scope", "end", "cluster" (allocate one), "free" (release it)."""


@dataclass
class Program:
    steps: list[Step]
    shapes: dict[int, tuple[int, ...]]
    """The sizes of the buffers that tasks allocate."""

    @property
    def tasks(self) -> list[Task]:
        return [step for step in self.steps if isinstance(step, Task)]


def inputs(seed: int) -> list[Array]:
    """Return the external buffers, with the numbers 0 to BUFFERS - 1."""
    numbers = np.random.default_rng(seed)
    return [numbers.integers(0, 2**32, ELEMENTS, np.uint32) for _ in range(BUFFERS)]


def run_in_order(program: Program, external: list[Array]) -> None:
    """Execute the program in place, one task after the other."""
    buffers: dict[int, Array] = dict(enumerate(external))
    for task in program.tasks:
        if task.makes is not None:
            buffers[task.makes] = np.zeros(program.shapes[task.makes], np.uint32)
        views = [(tag, view.of(buffers[view.buffer])) for tag, view in task.arguments]
        total = np.uint32(task.salt)
        with np.errstate(over="ignore"):
            for tag, view in views:
                if tag in READS - WRITES:
                    weights = 2 * np.arange(view.size, dtype=np.uint32) + np.uint32(1)
                    total += ((view.ravel() + np.uint32(1)) * weights).sum(dtype=np.uint32)
            for tag, view in views:
                if tag in WRITES:
                    places = np.uint32(7) * np.arange(view.size, dtype=np.uint32)
                    before = np.uint32(3) * view if tag == "inout" else np.uint32(0)
                    view[...] = before + total + places.reshape(view.shape)


def graph(program: Program) -> Callable[..., None]:
    """Return the orchestration that submits the program."""

    def submit(rt: Any, *external: Any) -> None:
        buffers: dict[int, Any] = dict(enumerate(external))
        ids: list[int] = []
        scopes = []
        cluster = None
        for step in program.steps:
            if isinstance(step, Task):
                ids.append(submit_task(rt, step, program, buffers, ids, cluster))
            elif step == "scope":
                scopes.append(rt.scope())
                scopes[-1].__enter__()
            elif step == "end":
                scopes.pop().__exit__(None, None, None)
            elif step == "cluster":
                cluster = rt.allocate_cluster()
            elif step == "free":
                rt.free_cluster(cluster)

    submit.__annotations__ = {"external": InOut}
    return submit


def submit_task(
    rt: Any, task: Task, program: Program, buffers: dict[int, Any], ids: list[int], cluster: Any
) -> int:
    if task.makes is not None:
        buffers[task.makes] = rt.tensor(program.shapes[task.makes], np.uint32)
    arguments = [WORDS[tag](view.of(buffers[view.buffer])) for tag, view in task.arguments[:-1]]
    tag, view = task.arguments[-1]
    whole = buffers[view.buffer]
    arguments.append(WORDS[tag](whole if task.makes is not None else view.of(whole)))
    settings: dict[str, Any] = {"after": [ids[place] for place in task.after]}
    count = len(arguments) + (256 if task.blocks else 0)
    if task.blocks:
        settings["block_dim"] = task.blocks
    if task.on_cluster and task.blocks:
        settings["clusters"] = [cluster] * task.blocks
    elif task.on_cluster:
        settings["cluster"] = cluster
    submit = rt.submit_block if task.blocks else rt.submit
    number: int = submit(MIX[task.core], count, task.salt, *arguments, **settings)
    return number


class Orders:
    """Computes which tasks the contract orders, from the elements that they access."""

    def __init__(self, hazards: str) -> None:
        self._is_full = hazards == "full"
        self._before: list[set[int]] = []
        self._writer: dict[tuple[int, int], int] = {}
        self._readers: dict[tuple[int, int], list[tuple[int, bool]]] = {}

    def add(self, task: Task) -> None:
        """Append a task. ``after`` names the conflicting tasks that the contract does not order."""
        number = len(self._before)
        promised: set[int] = set()
        needed: set[int] = set()
        for tag, view in task.arguments:
            for element in view.elements():
                self._meet((view.buffer, element), tag, promised, needed)
        before = self._closed(promised)
        for earlier in sorted(needed, reverse=True):
            if earlier not in before:
                task.after.append(earlier)
                before |= self._closed({earlier})
        self._before.append(before)
        for tag, view in task.arguments:
            for element in view.elements():
                self._leave((view.buffer, element), tag, number)

    def _closed(self, tasks: set[int]) -> set[int]:
        return tasks.union(*(self._before[task] for task in tasks))

    def _meet(self, place: tuple[int, int], tag: str, promised: set[int], needed: set[int]) -> None:
        if place in self._writer:
            needed.add(self._writer[place])
            if tag in ("in", "inout") or (self._is_full and tag == "out"):
                promised.add(self._writer[place])
        if tag in WRITES:
            for reader, is_known in self._readers.get(place, ()):
                needed.add(reader)
                if self._is_full and is_known and tag != "out_existing":
                    promised.add(reader)

    def _leave(self, place: tuple[int, int], tag: str, number: int) -> None:
        if tag in WRITES:
            self._writer[place] = number
            self._readers.pop(place, None)
        elif self._writer.get(place) != number:
            self._readers.setdefault(place, []).append((number, tag != "no_dep"))


class _Generator:
    def __init__(self, seed: int, hazards: str, *, only_inferred: bool) -> None:
        self._random = random.Random(seed)
        self._orders = Orders(hazards)
        self._tags = ["in", "in", "inout", "out"]
        if not only_inferred:
            self._tags += ["out_existing", "no_dep"]
        self._scopes: list[int] = []
        self._visible: list[int] = []
        self._cluster_depth: int | None = None
        self._program = Program([], {})

    def make(self) -> Program:
        for _ in range(self._random.randrange(20, MOST_TASKS)):
            self._change_scope()
            self._change_cluster()
            task = self._task()
            self._orders.add(task)
            self._program.steps.append(task)
        while self._scopes:
            self._end()
        return self._program

    def _one_in(self, chances: int) -> bool:
        return self._random.randrange(chances) == 0

    def _change_scope(self) -> None:
        if self._one_in(6) and len(self._scopes) < MOST_DEPTH:
            self._program.steps.append("scope")
            self._scopes.append(len(self._visible))
        elif self._one_in(5) and self._scopes:
            self._end()

    def _end(self) -> None:
        if self._cluster_depth == len(self._scopes):
            self._cluster_depth = None
        self._program.steps.append("end")
        del self._visible[self._scopes.pop() :]

    def _change_cluster(self) -> None:
        if self._cluster_depth is None and self._one_in(8):
            self._program.steps.append("cluster")
            self._cluster_depth = len(self._scopes)
        elif self._cluster_depth is not None and self._one_in(6):
            self._program.steps.append("free")
            self._cluster_depth = None

    def _view(self, buffer: int) -> View:
        numbers = self._random
        own = self._program.shapes.get(buffer)
        shape = numbers.choice(SHAPES) if own is None else own
        if own is not None and self._one_in(3):
            shape = (int(np.prod(own)),)
        box = []
        for size in shape:
            extent = size if self._one_in(3) else numbers.randint(1, size)
            first = numbers.randrange(size - extent + 1)
            box.append(slice(first, first + extent))
        return View(buffer, shape, tuple(box), self._one_in(4))

    def _task(self) -> Task:
        numbers = self._random
        task = Task([], numbers.randrange(2**32), numbers.choice(["aic", "aiv"]))
        if self._one_in(5):
            task.blocks = numbers.randint(1, 3)
        task.on_cluster = self._cluster_depth is not None and self._one_in(2)
        for _ in range(numbers.randint(0 if self._one_in(3) else 1, 4)):
            is_heap = bool(self._visible) and self._one_in(3)
            buffer = numbers.choice(self._visible) if is_heap else numbers.randrange(BUFFERS)
            tag = numbers.choice(self._tags)
            view = self._view(buffer)
            if is_heap and tag == "no_dep":
                continue
            if not task.blocks or is_apart(view, task):
                task.arguments.append((tag, view))
        if not task.arguments or self._one_in(4):
            self._allocate(task)
        return task

    def _allocate(self, task: Task) -> None:
        shape = self._random.choice([(5,), (300,), (20, 30), (4, 6, 10)])
        buffer = BUFFERS + len(self._program.shapes)
        self._program.shapes[buffer] = shape
        self._visible.append(buffer)
        task.makes = buffer
        task.arguments.append(("out", View(buffer, shape, tuple(slice(0, n) for n in shape))))


def is_apart(view: View, task: Task) -> bool:
    """Return whether the blocks of the task may access the view in any order."""
    mine = set(view.elements())
    return all(
        other.buffer != view.buffer or mine.isdisjoint(other.elements())
        for _, other in task.arguments
    )


def random_program(seed: int, hazards: str, *, only_inferred: bool = False) -> Program:
    """Return the program of a seed for these hazards.

    With ``only_inferred``, it uses no tag that opts out of the order under ``full`` hazards, so no
    task needs ``after``.
    """
    return _Generator(seed, hazards, only_inferred=only_inferred).make()
