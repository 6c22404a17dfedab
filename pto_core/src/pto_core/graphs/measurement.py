"""The measured accesses of a run: the bytes of named buffers that each task read and wrote.

1. Each measured row of the log is a range of addresses that one block of a task read or wrote.
2. The range is cut at the bounds of the buffers that the task names. A part inside a buffer is a
   *touch*, a part in no buffer a *stray*. A part inside a buffer, but in no declared view of it, is
   kept apart.
3. A task that was not measured touches the bytes that it declares.
4. The touches form an access log of their own (``conflicts``), in which the native analysis finds
   pairs without an order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from pto_core.graphs.buffers import RunBuffers
from pto_core.graphs.byte_set import ByteSet, Range
from pto_core.graphs.log import (
    ACCESS,
    ALLOCATED,
    BUFFER,
    CALL,
    EVENT,
    PAGES,
    READ,
    WRITE,
    AccessLog,
    Rows,
)
from pto_core.graphs.logged_graph import LoggedGraph
from pto_core.graphs.places import INOUT, INPUT, NO_DEP, OUTPUT_EXISTING, element_bytes

_UINT8 = 5
_EDGE_EVENT = 0
_ON_CLUSTER = 5


class Memory(NamedTuple):
    """A buffer that a task names: its addresses in this run, and the task that allocated it."""

    name: str
    begin: int
    end: int
    owner: int


class Touch(NamedTuple):
    """Bytes of one buffer that one block of a task read before it wrote them, or wrote."""

    task: int
    memory: Memory
    begin: int
    end: int
    is_write: bool
    block: int


class Page(NamedTuple):
    """A page in which a task whose kernel is a binary touched at least one byte."""

    task: int
    begin: int
    end: int
    is_write: bool


class Stray(NamedTuple):
    """Bytes of device memory that a task touched and that are in no buffer that it names."""

    task: int
    begin: int
    end: int
    is_write: bool


class Measurement:
    """The measured accesses of a graph.

    ``measured``: the tasks that reported their accesses. ``paged``: the tasks whose kernels are
    binaries, of which only the pages are known. They count as touching what they declare. If they
    declare nothing, they count as touching all bytes of these pages that are in their buffers.
    Other tasks run Python kernels and count as touching what they declare. ``outside_of_views``:
    bytes of a buffer that a measured task names, but that are in none of its views. They are no
    touches: their task is wrong, so no order of tasks would help.
    """

    def __init__(self, graph: LoggedGraph) -> None:
        self._graph = graph
        self._log = graph.log
        self.touches: list[Touch] = []
        self.outside_of_views: list[Touch] = []
        self.strays: list[Stray] = []
        self.measured: set[int] = set()
        self.paged: set[int] = set()
        self.pages: list[Page] = []
        self._memories: dict[int, list[Memory]] = {}
        self.buffers = RunBuffers(self._log)
        ranges: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        of_tasks = self._log.measured[self._log.measured["kind"] < ALLOCATED]
        for row in of_tasks.tolist():
            task, block = self._task_of_id[row[0]]
            ranges[task].append((row[3], block, row[1], row[2]))
            if row[3] in (CALL, PAGES):
                (self.measured if row[3] == CALL else self.paged).add(task)
        for task in range(len(graph)):
            if task in ranges:
                self._add_measured(task, ranges[task])
            if task not in self.measured and self._log.has_accesses:
                self._add_declared(task)

    def accesses_of(self, task: int) -> list[int]:
        """Return the accesses that a task declares, without those that only order tasks."""
        rows = self._log.accesses
        ends = self._log.tasks["accesses"]
        first = int(ends[task - 1]) if task else 0
        return [
            access
            for access in range(first, int(ends[task]))
            if not rows[access]["is_pipe"] and rows[access]["size"]
        ]

    def declared_bytes(self, task: int) -> ByteSet:
        """Return the bytes of the views of a task."""
        rows = self._log.accesses
        return ByteSet(run for access in self.accesses_of(task) for run in runs_of(rows[access]))

    def memory_of(self, access: int) -> Memory:
        """Return the buffer that an access names."""
        row = self._log.accesses[access]
        name, begin = self._graph.places.base(access)
        size = int(row["address"]) + int(row["size"]) - begin
        for buffer in self._log.buffers:
            if (buffer.name, buffer.address) == (name, begin):
                size = buffer.bytes
        return Memory(name, begin, begin + size, int(row["owner"]))

    def memories_of(self, task: int) -> list[Memory]:
        """Return the buffers that a measured task names."""
        return self._memories[task]

    @cached_property
    def conflicts(self) -> AccessLog:
        """A log of the touches, with the edges of the program as explicit edges.

        Reads are NO_DEP and writes OUTPUT_EXISTING, so the touches themselves order no tasks.
        """
        log = self._log
        rows = np.zeros(len(self.touches), ACCESS)
        for row, touch in zip(rows, self.touches, strict=True):
            bytes_ = touch.end - touch.begin
            row["address"] = touch.begin
            row["size"] = row["raw_shapes"][0] = row["shapes"][0] = bytes_
            row["ndims"], row["dtype"] = 1, _UINT8
            row["tag"] = OUTPUT_EXISTING if touch.is_write else NO_DEP
            row["owner"] = touch.memory.owner
        tasks = log.tasks.copy()
        of_task = np.array([touch.task for touch in self.touches], np.int64)
        tasks["accesses"] = np.searchsorted(of_task, np.arange(len(tasks)), side="right")
        edges = self._graph.edge_rows[["first", "second"]].tolist() + self._cluster_edges()
        first, second = np.array(edges, np.int64).reshape(-1, 2).T
        events = np.zeros(len(edges), EVENT)
        events["kind"] = _EDGE_EVENT
        events["tasks"] = len(tasks)
        events["first"] = tasks["id"][first]
        events["second"] = tasks["id"][second]
        return AccessLog(tasks, rows, events, log.files, log.kernels, log.buffers, is_full=False)

    def _cluster_edges(self) -> list[tuple[int, int]]:
        """Return the order of tasks that ran on the same cluster after it was allocated again.

        Another run may select other clusters. If tasks then conflict, the bytes do not depend on
        the cluster, and other pairs of tasks conflict in this run.
        """
        blocks = self._log.blocks
        cluster_of = {
            self._task_of_id[row["task"]]: row["core"]
            if row["core"] < blocks
            else (row["core"] - blocks) // 2
            for row in self._log.measured[np.isin(self._log.measured["kind"], (CALL, PAGES))]
        }
        held: dict[int, dict[int, list[int]]] = defaultdict(dict)
        seen: Counter[int] = Counter()
        for event in self._log.events[self._log.events["kind"] == _ON_CLUSTER]:
            task, _ = self._task_of_id[int(event["second"])]
            cluster = cluster_of.get((task, seen[task]))
            seen[task] += 1
            if cluster is not None:
                held[int(cluster)].setdefault(int(event["first"]), []).append(task)
        return [
            pair
            for allocations in held.values()
            for before, after in pairwise(tasks for _, tasks in sorted(allocations.items()))
            for pair in product(before, after)
            if pair[0] != pair[1]
        ]

    @cached_property
    def _task_of_id(self) -> dict[int, tuple[int, int]]:
        """The task and the block of each id."""
        step = 4 if self._log.has_ring_ids else 1
        return {
            int(row["id"]) + block * step: (task, block)
            for task, row in enumerate(self._log.tasks)
            for block in range(max(int(row["blocks"]), 1))
        }

    def _add_measured(self, task: int, ranges: list[tuple[int, int, int, int]]) -> None:
        if self._log.has_accesses:
            named = [self.memory_of(access) for access in self.accesses_of(task)]
        else:
            named = [self._memory_at(*range_[2:]) for range_ in ranges if range_[0] == BUFFER]
        memories = self._memories[task] = list(dict.fromkeys(named))
        known = ByteSet((memory.begin, memory.end) for memory in memories)
        is_paged = task in self.paged
        views = self.declared_bytes(task) if self._log.has_accesses else known
        for kind, block, begin, end in ranges:
            if kind not in (READ, WRITE):
                continue
            is_write = kind == WRITE
            if is_paged:
                self.pages.append(Page(task, begin, end, is_write))
            if not is_paged or not self._log.has_accesses:
                rest = ByteSet([(begin, end)])
                for memory in memories:
                    for run in rest.within(memory.begin, memory.end):
                        for parts, found in (
                            (views.within(*run), self.touches),
                            (views.missing(*run), self.outside_of_views),
                        ):
                            found += [Touch(task, memory, *one, is_write, block) for one in parts]
            if is_paged and known.within(begin, end):
                continue  # the access may have been inside
            for low, high in known.missing(begin, end):
                self.strays.append(Stray(task, low, high, is_write))

    def _add_declared(self, task: int) -> None:
        for access in self.accesses_of(task):
            memory = self.memory_of(access)
            tag = int(self._log.accesses[access]["tag"])
            for begin, end in runs_of(self._log.accesses[access]):
                if tag in (INPUT, INOUT, NO_DEP):
                    self.touches.append(Touch(task, memory, begin, end, False, 0))
                if tag not in (INPUT, NO_DEP):
                    self.touches.append(Touch(task, memory, begin, end, True, 0))

    def _memory_at(self, begin: int, end: int) -> Memory:
        return Memory(self.buffers.name(begin, end), begin, end, -1)


def runs_of(row: Rows) -> list[Range]:
    """Return the bytes of a view as ranges of addresses."""
    dims = int(row["ndims"])
    size = element_bytes(row)
    strides, stride = [0] * dims, size
    order = sorted(range(dims), key=lambda dim: -int(row["order"][dim]))
    for dim in order:  # from the innermost dimension of memory to the outermost
        strides[dim] = stride
        stride *= int(row["raw_shapes"][dim])
    shapes = [int(extent) for extent in row["shapes"][:dims]]
    if 0 in shapes:
        return []
    begin = int(row["address"]) + int(row["start_offset"]) * size
    length = size
    while order and strides[order[0]] == length:
        length *= shapes[order.pop(0)]
    starts = np.zeros(1, np.int64)
    for dim in reversed(order):
        starts = np.add.outer(starts, np.arange(shapes[dim]) * strides[dim]).reshape(-1)
    return [(begin + int(start), begin + int(start) + length) for start in starts]
