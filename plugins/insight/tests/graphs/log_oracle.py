"""Random access logs, and their edges and races by brute force over all pairs of accesses."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pto_insight.graphs.analysis import Why
from pto_insight.graphs.log import ACCESS, EVENT, HOST, TASK, AccessLog

INPUT, OUTPUT, INOUT, OUTPUT_EXISTING, NO_DEP = range(5)
UINT8 = 5
SIDE = 8
BYTES = SIDE * SIDE
BASE = 1 << 20


@dataclass(frozen=True)
class View:
    """A view of one buffer of 64 bytes: a range of bytes, or a box of its 8 x 8 form."""

    raw: tuple[int, ...]
    low: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def mask(self) -> np.ndarray:
        """The bytes of the buffer that the view contains, as a mask."""
        mask = np.zeros(self.raw, bool)
        mask[tuple(slice(a, a + n) for a, n in zip(self.low, self.size, strict=True))] = True
        return mask.reshape(-1)

    @property
    def is_whole(self) -> bool:
        """Whether the view is the whole buffer. Then it counts as a range, not as a box."""
        return self.size == self.raw

    @property
    def hull(self) -> tuple[int, int]:
        """The first byte of the view, and the byte after its last one."""
        at = np.flatnonzero(self.mask)
        return int(at[0]), int(at[-1]) + 1

    @property
    def is_contiguous(self) -> bool:
        """Whether the view contains all bytes of its hull."""
        first, end = self.hull
        return end - first == self.mask.sum()

    def is_same_frame(self, other: View) -> bool:
        """Return whether the boxes of both views can be compared."""
        return self.raw == other.raw and not self.is_whole and not other.is_whole

    def overlaps(self, other: View) -> bool:
        """Return whether the views overlap, by the rule at the top of region.hpp."""
        if self.is_same_frame(other):
            return bool((self.mask & other.mask).any())
        return self.hull[0] < other.hull[1] and other.hull[0] < self.hull[1]

    def covers(self, other: View) -> bool:
        """Return whether a write of this view supersedes a write of the other."""
        if self.is_same_frame(other):
            return bool((self.mask >= other.mask).all())
        first, end = other.hull
        return self.is_contiguous and self.hull[0] <= first and end <= self.hull[1]


@dataclass(frozen=True)
class Program:
    """A random program: the (tag, view) pairs of each task, and explicit edges.

    ``host``: the tasks that are accesses of the orchestration; each has one pair.
    """

    tasks: tuple[tuple[tuple[int, View], ...], ...]
    explicit: tuple[tuple[int, int], ...]
    is_full: bool
    host: frozenset[int] = frozenset()

    @property
    def accesses(self) -> list[tuple[int, int, View]]:
        """Return (task, tag, view) of each access."""
        return [(t, tag, view) for t, task in enumerate(self.tasks) for tag, view in task]


def random_program(seed: int, tasks: int, is_full: bool) -> Program:
    """Return a program that depends only on its arguments."""
    numbers = random.Random(seed)
    weights = numbers.choice([(6, 3, 3, 0, 0), (4, 4, 2, 2, 2), (1, 5, 1, 1, 1), (8, 1, 1, 0, 1)])
    made = tuple(
        tuple(
            (numbers.choices(range(5), weights)[0], random_view(numbers))
            for _ in range(numbers.randrange(1, 4))
        )
        for _ in range(tasks)
    )
    explicit = tuple(
        (numbers.randrange(task), task) for task in range(1, tasks) if numbers.random() < 0.1
    )
    return Program(made, explicit, is_full)


def random_view(numbers: random.Random) -> View:
    """Return a random range or box, often an aligned one, so that some accesses are equal."""
    if numbers.random() < 0.1:
        return View((BYTES,), (0,), (BYTES,))
    raw = numbers.choice([(BYTES,), (SIDE, SIDE), (SIDE, SIDE)])
    cell = numbers.choice([None, 4]) if len(raw) == 2 else numbers.choice([None, 8])
    if cell:
        low = tuple(numbers.randrange(extent // cell) * cell for extent in raw)
        return View(raw, low, (cell,) * len(raw))
    low = tuple(numbers.randrange(extent) for extent in raw)
    size = tuple(numbers.randrange(1, extent - a + 1) for a, extent in zip(low, raw, strict=True))
    return View(raw, low, size)


def log_of(program: Program, blocks: int = 24) -> AccessLog:
    """Return the log that a run of the program would write."""
    accesses = program.accesses
    rows = np.zeros(len(accesses), ACCESS)
    for row, (_, tag, view) in zip(rows, accesses, strict=True):
        dims = len(view.raw)
        row["address"], row["size"], row["dtype"], row["owner"] = BASE, BYTES, UINT8, -1
        row["ndims"], row["tag"] = dims, tag
        row["raw_shapes"][:dims], row["offsets"][:dims] = view.raw, view.low
        row["shapes"][:dims], row["order"][:dims] = view.size, range(dims)
        row["start_offset"] = np.ravel_multi_index(view.low, view.raw)
    tasks = np.zeros(len(program.tasks), TASK)
    tasks["id"] = np.arange(len(tasks)) * 4
    tasks["accesses"] = np.cumsum([len(task) for task in program.tasks])
    for host in program.host:
        tasks[host]["id"], tasks[host]["traits"] = -1 - host, HOST
    events = np.zeros(len(program.explicit), EVENT)
    for event, (first, second) in zip(events, program.explicit, strict=True):
        event["tasks"], event["first"], event["second"] = second + 1, first * 4, second * 4
    return AccessLog(tasks, rows, events, (), {0: "k"}, is_full=program.is_full, blocks=blocks)


def reasons_of(program: Program) -> set[tuple[int, int, Why]]:
    """Return (first access, second access, reason) of each edge between accesses."""
    accesses = program.accesses
    writers: list[int] = []
    readers: list[int] = []
    found = set()
    bounds = [0, *np.cumsum([len(task) for task in program.tasks]).tolist()]
    for first, end in pairwise(bounds):
        for here in range(first, end):
            _, tag, view = accesses[here]

            def meets(other: int, view: View = view) -> bool:
                return accesses[other][2].overlaps(view)

            if tag in (INPUT, INOUT):
                found |= {(other, here, Why.READ) for other in writers if meets(other)}
            elif tag == OUTPUT and program.is_full:
                found |= {(other, here, Why.OVERWRITE) for other in writers if meets(other)}
            if tag in (INOUT, OUTPUT) and program.is_full:
                found |= {(other, here, Why.ANTI_DEPENDENCE) for other in readers if meets(other)}
        for here in range(first, end):
            _, tag, view = accesses[here]
            if tag == INPUT:
                readers.append(here)
            elif tag != NO_DEP:
                writers = [other for other in writers if not view.covers(accesses[other][2])]
                readers = [other for other in readers if not view.covers(accesses[other][2])]
                writers.append(here)
    return found


def order_of(tasks: int, edges: set[tuple[int, int]]) -> np.ndarray:
    """Return, for each pair of tasks, whether the first is ordered before the second."""
    before = np.zeros((tasks, tasks), bool)
    for first, second in sorted(edges, key=lambda edge: edge[1]):
        before[:, second] |= before[:, first]
        before[first, second] = True
    return before


def conflicts_of(program: Program, before: np.ndarray) -> set[tuple[int, int]]:
    """Return the unordered pairs of accesses that share bytes and contain a write."""
    accesses = program.accesses
    masks = [view.mask for _, _, view in accesses]
    found = set()
    for second, (task, tag, _) in enumerate(accesses):
        for first in range(second):
            other, other_tag, _ = accesses[first]
            writes = {OUTPUT, INOUT, OUTPUT_EXISTING} & {tag, other_tag}
            if other == task or not writes or before[other, task]:
                continue
            if (masks[first] & masks[second]).any():
                found.add((first, second))
    return found


def with_host(program: Program, numbers: random.Random) -> Program:
    """Return the program with accesses of the orchestration in the place of some tasks."""
    host = frozenset(t for t in range(len(program.tasks)) if numbers.random() < 0.3)
    tasks = list(program.tasks)
    for task in host:
        tag, view = tasks[task][0]
        tasks[task] = ((INPUT if tag == INPUT else OUTPUT_EXISTING, view),)
    return replace(program, tasks=tuple(tasks), explicit=(), host=host)


def edges_of_host(program: Program) -> set[tuple[int, int]]:
    """Return the edges of the accesses of the orchestration, also those that others imply."""
    accesses = program.accesses
    found = {(host, task) for host in program.host for task in range(host + 1, len(program.tasks))}
    for task, tag, view in accesses:
        if task in program.host and tag != INPUT:
            found |= {(t, task) for t, _, other in accesses if t < task and other.overlaps(view)}
    return found
