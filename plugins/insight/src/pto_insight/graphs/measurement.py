"""The measured accesses of a run: the bytes of named buffers that each task read and wrote.

1. Each measured row of the log is a range of addresses that one block of a task read or wrote.
2. The range is cut at the bounds of the buffers that the task names. A part in a declared view is a
   byte access. Parts of a buffer outside of the declared views, and parts outside of all these
   buffers, are kept apart.
3. A task that was not measured has a byte access for each range that it declares.
4. The byte accesses form an access log of their own (``conflicts``), in which the native analysis
   finds pairs without an order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from pto_insight.graphs.log import (
    ACCESS,
    ALLOCATED,
    BUFFER,
    CALL,
    COPIED_IN,
    COPIED_OUT,
    EVENT,
    NO_EDGE,
    PAGES,
    READ,
    WRITE,
    AccessLog,
    HostArray,
    Rows,
)
from pto_insight.graphs.logged_graph import LoggedGraph
from pto_insight.graphs.places import (
    INOUT,
    INPUT,
    NO_DEP,
    OUTPUT_EXISTING,
    ViewLayout,
    element_bytes,
)

Range = tuple[int, int]
"""The first byte, and the byte after the last one."""


class ByteSet:
    """A set of bytes. The cost of each method follows the number of ranges that it touches."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in ranges:
            self.add(begin, end)

    def __len__(self) -> int:
        """Return the number of bytes."""
        return sum(self._ends) - sum(self._begins)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._begins, self._ends, strict=True)

    @property
    def hull(self) -> Range:
        """The address of the first byte and the address after the last; the set is not empty."""
        return self._begins[0], self._ends[-1]

    def add(self, begin: int, end: int) -> None:
        """Add the bytes from ``begin`` to ``end`` - 1."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def within(self, begin: int, end: int) -> list[Range]:
        """Return the parts of a range that the set contains."""
        first = bisect_right(self._ends, begin)
        last = bisect_left(self._begins, end)
        return [
            (max(begin, self._begins[at]), min(end, self._ends[at])) for at in range(first, last)
        ]

    def missing(self, begin: int, end: int) -> list[Range]:
        """Return the parts of a range that the set does not contain."""
        found = []
        for low, high in self.within(begin, end):
            if begin < low:
                found.append((begin, low))
            begin = high
        if begin < end:
            found.append((begin, end))
        return found


class Copy(NamedTuple):
    """Bytes of device memory that the orchestration copied from or to an argument of the run."""

    array: HostArray
    offset: int
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The name of the argument, and the bytes unless all of it was copied."""
        size = self.end - self.begin
        if size == self.array.bytes:
            return self.array.name
        return f"{self.array.name}[bytes {self.offset}:{self.offset + size}]"


class RunBuffers:
    """The buffers of a run. Arguments have names; other buffers are "memory n" by first use.

    A buffer that the orchestration allocated has the name of the argument that it is copied to or
    from. Its content is undefined at first, except for the bytes that were copied in.
    """

    def __init__(self, log: AccessLog) -> None:
        self._known = {buffer.address: buffer for buffer in log.buffers}
        self._arrays = log.host_arrays
        rows = log.measured
        calls = np.flatnonzero(rows["kind"] == CALL)
        after_first_call = int(calls[0]) if len(calls) else 0
        self._allocated = {int(row["begin"]) for row in rows[rows["kind"] == ALLOCATED]}
        self._in = list(self._copies(rows[rows["kind"] == COPIED_IN]))
        # A copy before the first task returns no result.
        results = rows[after_first_call:]
        self._out = list(self._copies(results[results["kind"] == COPIED_OUT]))
        self._bytes_in = ByteSet(copy[2:4] for copy in self._in)
        self._bytes_out = ByteSet(copy[2:4] for copy in self._out)
        self._numbers: dict[int, int] = {}

    def name(self, begin: int, end: int) -> str:
        """Return the name of a buffer."""
        if begin in self._known:
            return self._known[begin].name
        for copy in (*self._out, *self._in):
            if begin <= copy.begin < end:
                return copy.name
        return f"memory {self._numbers.setdefault(begin, len(self._numbers))}"

    def undefined(self, begin: int, end: int) -> ByteSet:
        """Return the bytes of a buffer that have no content before the first task."""
        if begin in self._known:
            return ByteSet() if self._known[begin].is_copied_in else ByteSet([(begin, end)])
        if begin not in self._allocated:
            return ByteSet()
        return ByteSet(self._bytes_in.missing(begin, end))

    def is_input(self, begin: int, end: int) -> bool:
        """Return whether a buffer is copied in and not copied back."""
        if begin in self._known:
            return self._known[begin].is_copied_in and not self._known[begin].is_copied_back
        is_copied_back = bool(self._bytes_out.within(begin, end))
        return bool(self._bytes_in.within(begin, end)) and not is_copied_back

    def outputs(self) -> Iterator[tuple[str, int, ByteSet]]:
        """Yield the name and address of each result, and its bytes that were not copied in."""
        for buffer in self._known.values():
            if buffer.is_copied_back and not buffer.is_copied_in:
                end = buffer.address + buffer.bytes
                yield buffer.name, buffer.address, ByteSet([(buffer.address, end)])
        for copy in self._out:
            yield copy.name, copy.begin, ByteSet(self._bytes_in.missing(copy.begin, copy.end))

    def _copies(self, rows: Rows) -> Iterator[Copy]:
        for row in rows:
            host = int(row["task"])
            for array in self._arrays:
                if array.address <= host < array.address + array.bytes:
                    yield Copy(array, host - array.address, int(row["begin"]), int(row["end"]))
                    break


_UINT8 = 5
_EDGE_EVENT = 0
_ON_CLUSTER = 5


class NamedBuffer(NamedTuple):
    """A buffer that a task names: its addresses in this run, and the task that allocated it."""

    name: str
    begin: int
    end: int
    owner: int


class ByteAccess(NamedTuple):
    """Bytes of one buffer that one block of a task read before it wrote them, or wrote."""

    task: int
    buffer: NamedBuffer
    begin: int
    end: int
    is_write: bool
    block: int


class PageAccess(NamedTuple):
    """A page of which a task read or wrote at least one byte; its kernel is a binary."""

    task: int
    begin: int
    end: int
    is_write: bool


class OutsideAccess(NamedTuple):
    """Bytes of device memory that a task read or wrote outside of all buffers that it names."""

    task: int
    begin: int
    end: int
    is_write: bool


class Measurement:
    """The measured accesses of a graph.

    ``measured_by_bytes``: the tasks that reported their accesses. ``measured_by_pages``: the tasks
    whose kernels are binaries, of which only the pages are known. They count as accessing what they
    declare. If they declare nothing, they count as accessing all bytes of these pages that are in
    their buffers. Other tasks run Python kernels and count as accessing what they declare.
    ``outside_of_views``: bytes of a buffer that a measured task names, but that are in none of its
    views. They are not in ``byte_accesses``: their task is wrong, so no order of tasks would help.
    """

    def __init__(self, graph: LoggedGraph) -> None:
        self._graph = graph
        self._log = graph.log
        self.byte_accesses: list[ByteAccess] = []
        self.outside_of_views: list[ByteAccess] = []
        self.outside_of_buffers: list[OutsideAccess] = []
        self.measured_by_bytes: set[int] = set()
        self.measured_by_pages: set[int] = set()
        self.page_accesses: list[PageAccess] = []
        self._buffers_of_task: dict[int, list[NamedBuffer]] = {}
        self.buffers = RunBuffers(self._log)
        ranges: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        of_tasks = self._log.measured[self._log.measured["kind"] < ALLOCATED]
        for row in of_tasks.tolist():
            task, block = self._task_of_id[row[0]]
            ranges[task].append((row[3], block, row[1], row[2]))
            if row[3] in (CALL, PAGES):
                has_bytes = row[3] == CALL
                (self.measured_by_bytes if has_bytes else self.measured_by_pages).add(task)
        for task in range(len(graph)):
            if task in ranges:
                self._add_measured(task, ranges[task])
            if task not in self.measured_by_bytes and self._log.has_accesses:
                self._add_declared(task)

    @property
    def measured(self) -> set[int]:
        """The tasks whose accesses were measured: each byte, or whole pages."""
        return self.measured_by_bytes | self.measured_by_pages

    @property
    def unmeasured(self) -> set[int]:
        """The tasks that run a kernel of which the accesses are not known."""
        with_kernel = np.flatnonzero(self._log.tasks["core_type"] >= 0).tolist()
        return set(with_kernel) - self.measured

    def declared_accesses(self, task: int) -> list[int]:
        """Return the accesses that a task declares, without accesses that only order tasks."""
        rows = self._log.accesses
        ends = self._log.tasks["accesses"]
        first = int(ends[task - 1]) if task else 0
        return [
            access
            for access in range(first, int(ends[task]))
            if not rows[access]["is_pipe"]
            and rows[access]["size"]
            and rows[access]["limits"] != NO_EDGE  # no kernel reads the operand of a predicate
        ]

    def declared_bytes(self, task: int) -> ByteSet:
        """Return the bytes of the views of a task."""
        rows = self._log.accesses
        return ByteSet(
            part for access in self.declared_accesses(task) for part in view_ranges(rows[access])
        )

    def buffer_of_access(self, access: int) -> NamedBuffer:
        """Return the buffer that an access names."""
        row = self._log.accesses[access]
        name, begin = self._graph.places.base(access)
        size = int(row["address"]) + int(row["size"]) - begin
        for buffer in self._log.buffers:
            if (buffer.name, buffer.address) == (name, begin):
                size = buffer.bytes
        return NamedBuffer(name, begin, begin + size, int(row["owner"]))

    def buffers_of_task(self, task: int) -> list[NamedBuffer]:
        """Return the buffers that a measured task names."""
        return self._buffers_of_task[task]

    @cached_property
    def conflicts(self) -> AccessLog:
        """A log of the byte accesses, with the edges of the program as explicit edges.

        Reads are NO_DEP and writes OUTPUT_EXISTING, so the rows themselves order no tasks.
        """
        log = self._log
        rows = np.zeros(len(self.byte_accesses), ACCESS)
        for row, access in zip(rows, self.byte_accesses, strict=True):
            bytes_ = access.end - access.begin
            row["address"] = access.begin
            row["size"] = row["raw_shapes"][0] = row["shapes"][0] = bytes_
            row["ndims"], row["dtype"] = 1, _UINT8
            row["tag"] = OUTPUT_EXISTING if access.is_write else NO_DEP
            row["owner"] = access.buffer.owner
        tasks = log.tasks.copy()
        of_task = np.array([access.task for access in self.byte_accesses], np.int64)
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
        return task_and_block_of_id(self._log)

    def _add_measured(self, task: int, ranges: list[tuple[int, int, int, int]]) -> None:
        if self._log.has_accesses:
            named = [self.buffer_of_access(access) for access in self.declared_accesses(task)]
        else:
            named = [self._buffer_at(*range_[2:]) for range_ in ranges if range_[0] == BUFFER]
        buffers = self._buffers_of_task[task] = list(dict.fromkeys(named))
        known = ByteSet((buffer.begin, buffer.end) for buffer in buffers)
        has_only_pages = task in self.measured_by_pages
        views = self.declared_bytes(task) if self._log.has_accesses else known
        for kind, block, begin, end in ranges:
            if kind not in (READ, WRITE):
                continue
            is_write = kind == WRITE
            if has_only_pages:
                self.page_accesses.append(PageAccess(task, begin, end, is_write))
            if not has_only_pages or not self._log.has_accesses:
                rest = ByteSet([(begin, end)])
                for buffer in buffers:
                    for part in rest.within(buffer.begin, buffer.end):
                        self.byte_accesses += [
                            ByteAccess(task, buffer, *inside, is_write, block)
                            for inside in views.within(*part)
                        ]
                        self.outside_of_views += [
                            ByteAccess(task, buffer, *outside, is_write, block)
                            for outside in views.missing(*part)
                        ]
            if has_only_pages and known.within(begin, end):
                continue  # the access may have been inside
            for low, high in known.missing(begin, end):
                self.outside_of_buffers.append(OutsideAccess(task, low, high, is_write))

    def _add_declared(self, task: int) -> None:
        for access in self.declared_accesses(task):
            buffer = self.buffer_of_access(access)
            tag = int(self._log.accesses[access]["tag"])
            for begin, end in view_ranges(self._log.accesses[access]):
                if tag in (INPUT, INOUT, NO_DEP):
                    self.byte_accesses.append(ByteAccess(task, buffer, begin, end, False, 0))
                if tag not in (INPUT, NO_DEP):
                    self.byte_accesses.append(ByteAccess(task, buffer, begin, end, True, 0))

    def _buffer_at(self, begin: int, end: int) -> NamedBuffer:
        return NamedBuffer(self.buffers.name(begin, end), begin, end, -1)


def task_and_block_of_id(log: AccessLog) -> dict[int, tuple[int, int]]:
    """Return the task and the block of each id in the measured rows."""
    step = 4 if log.has_ring_ids else 1
    return {
        int(row["id"]) + block * step: (task, block)
        for task, row in enumerate(log.tasks)
        for block in range(max(int(row["blocks"]), 1))
    }


def view_ranges(row: Rows) -> list[Range]:
    """Return the bytes of a view as ranges of addresses."""
    size = element_bytes(row)
    layout = ViewLayout(row)
    order, strides = layout.order, [stride * size for stride in layout.strides]
    shapes = [int(extent) for extent in row["shapes"][: len(order)]]
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
