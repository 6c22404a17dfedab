"""The race check: pairs of tasks that touch the same bytes and that nothing orders.

The declared accesses of all tasks are checked first. If the log is measured, the bytes that tasks
really access decide, and differences from the declarations are findings of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np

from pto_core.errors import UnsupportedError
from pto_insight.graphs.analysis import CONFLICT
from pto_insight.graphs.findings import (
    Findings,
    Mismatch,
    Race,
    existing_output,
    mark_implied,
    missing_edge,
)
from pto_insight.graphs.logged_graph import Access, LoggedGraph, LoggedTask
from pto_insight.graphs.measurement import (
    ByteAccess,
    ByteSet,
    Measurement,
    NamedBuffer,
    OutsideAccess,
    PageAccess,
    view_ranges,
)
from pto_insight.graphs.places import INOUT, INPUT, NO_DEP, OUTPUT, OUTPUT_EXISTING


def check(graph: LoggedGraph, limit: int) -> Findings:
    """Return the findings for a graph; see :meth:`~pto_insight.graphs.TaskGraph.check`."""
    if not graph.log.has_accesses and not graph.log.is_measured:
        raise UnsupportedError(
            "this runtime does not know what its tasks read and write, so races cannot be found; "
            "measure the accesses of the kernels (measure=True, or pto check --measure), or choose "
            "a runtime that finds dependencies, such as tensormap_and_ringbuffer",
            name="measure",
            value=False,
        )
    packed, is_complete = graph.conflict_rows(limit)
    rows = np.frombuffer(packed, CONFLICT)
    tags = graph.log.accesses["tag"]
    pairs: dict[tuple[bool, int, int], list[int]] = {}
    for index, row in enumerate(rows):
        first, second = int(row["first"]), int(row["second"])
        tasks = int(graph.task_of_access[first]), int(graph.task_of_access[second])
        both = int(tags[first]), int(tags[second])
        is_declared = NO_DEP in both or _is_existing_output(graph, tasks[1], both[1])
        pairs.setdefault((is_declared, *tasks), []).append(index)
    found: tuple[list[Race], list[Race]] = ([], [])
    for (is_declared, *_), indices in sorted(pairs.items()):
        indices.sort(key=lambda index: (int(rows[index]["first"]), int(rows[index]["second"])))
        found[is_declared].append(_race(graph, rows[indices[0]], len(indices) - 1))
    declared = Findings(
        mark_implied(found[0], graph.is_before),
        tuple(found[1]),
        _unread(graph),
        _unwritten(graph),
        is_complete,
    )
    return check_measured(graph, declared, limit) if graph.log.is_measured else declared


def _race(graph: LoggedGraph, row: np.void, others: int) -> Race:
    accesses = int(row["first"]), int(row["second"])
    first, second = (graph.task(int(graph.task_of_access[access])) for access in accesses)
    places = [graph.places.of(access) for access in accesses]
    begin, end = graph.places.bytes_at(accesses[0], int(row["first_byte"]), int(row["last_byte"]))
    return Race(
        first=first,
        second=second,
        first_tag=graph.tag(accesses[0]),
        second_tag=graph.tag(accesses[1]),
        first_place=places[0].text,
        second_place=places[1].text,
        buffer=places[0].buffer,
        begin=begin,
        end=end,
        shared_bytes=int(row["shared_bytes"]),
        others=others,
        fix=_fix(graph, accesses, (first, second)),
    )


def _fix(
    graph: LoggedGraph, accesses: tuple[int, int], tasks: tuple[LoggedTask, LoggedTask]
) -> str:
    tags = [int(graph.log.accesses[access]["tag"]) for access in accesses]
    for tag, access, task in zip(tags, accesses, tasks, strict=True):
        if tag == NO_DEP:
            return f"declare {graph.places.of(access).text} of {task.label} as INPUT"
    first, second = tasks
    if _is_existing_output(graph, second.index, tags[1]):
        return existing_output(second)
    return missing_edge(graph.log, first, second)


def _is_existing_output(graph: LoggedGraph, task: int, tag: int) -> bool:
    """Return whether an access states that its task need not wait for earlier users.

    In the interface of August 2026, the tag is that of any output that has memory.
    """
    return tag == OUTPUT_EXISTING and not graph.log.is_of_2026_08(task)


def _unread(graph: LoggedGraph) -> tuple[Access, ...]:
    rows = graph.log.accesses
    memory = np.stack([rows["owner"].astype(np.uint64), rows["address"]], axis=1)
    read = np.isin(rows["tag"], (INPUT, INOUT, NO_DEP)) & (rows["owner"] >= 0)
    known = set(map(tuple, memory[read].tolist()))
    ids = graph.log.tasks["id"][graph.task_of_access]
    fresh = np.flatnonzero((rows["tag"] == OUTPUT) & (rows["owner"] == ids))
    return tuple(
        graph.access(int(access)) for access in fresh if tuple(memory[access].tolist()) not in known
    )


def _unwritten(graph: LoggedGraph) -> tuple[Access, ...]:
    accesses = graph.unwritten
    address = graph.log.accesses["address"][accesses]
    for buffer in graph.log.buffers:
        if buffer.is_copied_in:
            is_inside = (address >= buffer.address) & (address < buffer.address + buffer.bytes)
            accesses, address = accesses[~is_inside], address[~is_inside]
    places = [(int(access), graph.places.of(int(access))) for access in accesses]
    return tuple(
        graph.access(access)
        for access, place in places
        if not place.buffer.startswith("memory ") and not place.text.endswith("(key)")
    )


# ---- measured accesses ----

Shared = tuple[tuple[ByteAccess, ByteAccess], int, int]
"""Two accesses that conflict, and the range of bytes that both have."""


def check_measured(graph: LoggedGraph, declared: Findings, limit: int) -> Findings:
    """Return the findings for a graph whose accesses were measured.

    ``declared``: the findings for the declared accesses.
    """
    check = _Check(graph)
    found, is_complete = check.races(limit)
    # If tasks declare nothing, the bytes of a binary kernel are those of whole pages.
    coarse = set() if graph.log.has_accesses else check.measurement.measured_by_pages
    races = [race for race in found if not {race.first.index, race.second.index} & coarse]
    racing = {(race.first.index, race.second.index) for race in races}
    excepted = (
        race for race in declared.declared if (race.first.index, race.second.index) not in racing
    )
    measurement, declarations = check.measurement, check.declarations
    return replace(
        declared,
        races=(*mark_implied(races, graph.is_before), *check.races_of_blocks()),
        declared=tuple(excepted),
        uninitialised_reads=tuple(declarations.uninitialised_reads()),
        is_complete=is_complete,
        outside=tuple(declarations.outside()),
        undeclared=tuple(declarations.undeclared()),
        unwritten_outputs=tuple(declarations.unwritten_outputs()),
        possible=tuple(race for race in found if race not in races),
        measured_by_pages=len(measurement.measured_by_pages),
        unmeasured=len(measurement.unmeasured),
    )


class _Check:
    def __init__(self, graph: LoggedGraph) -> None:
        self._graph = graph
        self.measurement = Measurement(graph)
        self.declarations = Declarations(graph, self.measurement)

    def races(self, limit: int) -> tuple[list[Race], bool]:
        """Return one race for each pair of tasks and buffer, and whether these are all."""
        conflicts = LoggedGraph(self.measurement.conflicts)
        packed, is_complete = conflicts.conflict_rows(limit)
        accesses = self.measurement.byte_accesses
        pairs: dict[tuple[int, int, NamedBuffer], list[Shared]] = defaultdict(list)
        for row in np.frombuffer(packed, CONFLICT):
            first, second = accesses[row["first"]], accesses[row["second"]]
            shift = first.begin - int(conflicts.extents[row["first"]][0])
            shared = int(row["first_byte"]) + shift, int(row["last_byte"]) + shift
            pairs[first.task, second.task, first.buffer].append(((first, second), *shared))
        found = sorted(pairs.items(), key=lambda pair: pair[0])
        return [self._race(rows) for _, rows in found], is_complete

    def races_of_blocks(self) -> Iterator[Race]:
        """Find blocks of one task that access the same bytes; at least one of them writes."""
        by_task: dict[int, list[ByteAccess]] = defaultdict(list)
        for access in self.measurement.byte_accesses:
            if self._graph.log.tasks["blocks"][access.task] > 1:
                by_task[access.task].append(access)
        for index, accesses in by_task.items():
            for first, second in _overlap_of_blocks(accesses):
                task = self._graph.task(index)
                sides = [
                    (task, f"block {access.block} {_use({access.is_write})}")
                    for access in (first, second)
                ]
                shared = ByteSet([(max(first.begin, second.begin), min(first.end, second.end))])
                yield self._report(
                    first.buffer, shared, sides, "let each block write bytes of its own"
                )

    def _race(self, rows: list[Shared]) -> Race:
        buffer = rows[0][0][0].buffer
        shared = ByteSet((low, high) for _, low, high in rows)
        sides, fixes = [], []
        for side in (0, 1):
            task = self._graph.task(rows[0][0][side].task)
            use = _use({accesses[side].is_write for accesses, _, _ in rows})
            tags = self.declarations.tags(task.index, buffer, shared)
            fixes.append(self._wrong_declaration(task, buffer, use, tags))
            sides.append((task, f"{use}, declared {' and '.join(tags)}" if tags else use))
        fix = fixes[0] or fixes[1] or self._missing_edge(sides[0][0], sides[1][0], tags)
        return self._report(buffer, shared, sides, fix)

    def _report(
        self, buffer: NamedBuffer, shared: ByteSet, sides: list[tuple[LoggedTask, str]], fix: str
    ) -> Race:
        begin, end = (at - buffer.begin for at in shared.hull)
        (first, first_use), (second, second_use) = sides
        return Race(
            first=first,
            second=second,
            first_tag=first_use,
            second_tag=second_use,
            first_place=buffer.name,
            second_place=buffer.name,
            buffer=buffer.name,
            begin=begin,
            end=end,
            shared_bytes=len(shared),
            others=0,
            fix=fix,
        )

    def _wrong_declaration(
        self, task: LoggedTask, buffer: NamedBuffer, use: str, tags: list[str]
    ) -> str:
        """Return the change of a declaration that does not cover the use, or an empty text."""
        if not self._graph.log.has_accesses or task.index not in self.measurement.measured_by_bytes:
            return ""
        is_wrong = "writes" in use and "INPUT" in tags and len(set(tags)) == 1
        if tags and "NO_DEP" not in tags and not is_wrong:
            return ""
        needed = {"reads": "INPUT", "writes": "OUTPUT"}.get(use, "INOUT")
        return f"declare {buffer.name} of {task.label} as {needed}"

    def _missing_edge(self, first: LoggedTask, second: LoggedTask, tags: list[str]) -> str:
        has_accesses = self._graph.log.has_accesses
        is_existing = "OUTPUT_EXISTING" in tags and not self._graph.log.is_of_2026_08(second.index)
        if has_accesses and is_existing:
            return existing_output(second)
        return missing_edge(self._graph.log, first, second)


def _use(writes: set[bool]) -> str:
    if len(writes) == 2:
        return "reads and writes"
    return "writes" if True in writes else "reads"


def _overlap_of_blocks(accesses: list[ByteAccess]) -> list[tuple[ByteAccess, ByteAccess]]:
    """Return a pair of accesses of two blocks that conflict, if there is one."""
    last: dict[bool, ByteAccess] = {}  # of the reads and of the writes: the access that ends last
    for access in sorted(accesses, key=lambda access: access.begin):
        for is_write, other in last.items():
            is_conflict = access.is_write or is_write
            if is_conflict and other.block != access.block and access.begin < other.end:
                return [(other, access)]
        known = last.get(access.is_write)
        if known is None or known.end <= access.end:
            last[access.is_write] = access
    return []


# ---- differences between what tasks declare and the bytes that they access ----

# An access that misses a buffer by more than its size, and by more than this, has a wrong address.
_NEAR_BYTES = 4096
_NO_BUFFER = NamedBuffer("", 0, 0, -1)


class Declarations:
    """Compares the declarations of tasks with their measured accesses."""

    def __init__(self, graph: LoggedGraph, measurement: Measurement) -> None:
        self._graph = graph
        self._log = graph.log
        self._measurement = measurement
        self._views = lru_cache(maxsize=1024)(self._find_views)
        self._writable = lru_cache(maxsize=1024)(self._find_writable)

    def tags(self, task: int, buffer: NamedBuffer, shared: ByteSet) -> list[str]:
        """Return the tags of the views of a task that have some of these bytes."""
        begin, end = shared.hull
        return [
            self._graph.tag(access)
            for access, view in self._views(task)
            if self._measurement.buffer_of_access(access) == buffer and view.within(begin, end)
        ]

    def outside(self) -> Iterator[Mismatch]:
        """Find bytes that are in no buffer that the task names."""
        found: dict[tuple[int, bool, NamedBuffer], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.outside_of_buffers:
            buffer = self._missed_buffer(access) or _NO_BUFFER
            found[access.task, access.is_write, buffer].add(access.begin, access.end)
        for (task, is_write, buffer), outside in found.items():
            verb = "writes" if is_write else "reads"
            why = f"{buffer.name} has {buffer.end - buffer.begin} bytes"
            if buffer is _NO_BUFFER:
                why = "far from every buffer of the task; the address may be wrong"
            if task in self._measurement.measured_by_pages:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, buffer, outside, verb, why)
        yield from self._outside_of_views()

    def _missed_buffer(self, access: OutsideAccess) -> NamedBuffer | None:
        """Return the buffer of the task that an access probably missed, if it is near."""

        def distance(buffer: NamedBuffer) -> int:
            return max(buffer.begin - access.end, access.begin - buffer.end)

        buffers = self._measurement.buffers_of_task(access.task)
        near = min(buffers, key=distance, default=None)
        if near is None or distance(near) > max(near.end - near.begin, _NEAR_BYTES):
            return None
        return near

    def _outside_of_views(self) -> Iterator[Mismatch]:
        """Find bytes of a buffer that the task names, but that are in none of its views."""
        found: dict[tuple[int, NamedBuffer, bool], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.outside_of_views:
            found[access.task, access.buffer, access.is_write].add(access.begin, access.end)
        for page in self._measurement.page_accesses:
            if not self._is_outside_of_views(page):
                continue
            for buffer in self._buffers_in_page(page):
                for part in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    found[page.task, buffer, page.is_write].add(*part)
        for (task, buffer, is_write), outside in found.items():
            places = [
                self._graph.places.of(access).text
                for access, _ in self._views(task)
                if self._measurement.buffer_of_access(access) == buffer
            ]
            noun = "region" if len(places) == 1 else "regions"
            why = f"outside of its declared {noun} {' and '.join(dict.fromkeys(places))}"
            verb = "writes" if is_write else "reads"
            if task in self._measurement.measured_by_pages:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, buffer, outside, verb, why)

    def _is_outside_of_views(self, page: PageAccess) -> bool:
        """Return whether a page has bytes of buffers of the task, but none of its views."""
        if not self._log.has_accesses or not self._buffers_in_page(page):
            return False
        return not any(view.within(page.begin, page.end) for _, view in self._views(page.task))

    def undeclared(self) -> Iterator[Mismatch]:
        """Find bytes that a task writes although it declares them as input, or inputs of a run."""
        found: dict[tuple[int, NamedBuffer], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.byte_accesses:
            if not access.is_write or access.task not in self._measurement.measured_by_bytes:
                continue
            if self._log.has_accesses:
                wrong = self._writable(access.task).missing(access.begin, access.end)
            else:
                wrong = [(access.begin, access.end)] if self._is_input(access.buffer) else []
            for begin, end in wrong:
                found[access.task, access.buffer].add(begin, end)
        for page in self._measurement.page_accesses:
            buffers = self._buffers_in_page(page)
            is_known = self._may_write(page, buffers) or self._is_outside_of_views(page)
            if not page.is_write or is_known:
                continue
            for buffer in buffers:
                for begin, end in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    found[page.task, buffer].add(begin, end)
        why = "declared as input" if self._log.has_accesses else "an input of the run"
        for (task, buffer), written in found.items():
            if task in self._measurement.measured_by_pages:
                coarse = f"{why}; known by pages"
                yield self._mismatch(task, buffer, written, "writes some", coarse)
            else:
                yield self._mismatch(task, buffer, written, "writes", why)

    def unwritten_outputs(self) -> Iterator[Mismatch]:
        """Find bytes of the run's arguments that are declared as outputs and that no task writes.

        A task may leave them to another task, so the last task that declares them is reported. A
        heap buffer may be larger than what is needed: only reads of its other bytes are wrong.
        """
        written: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
        for access in chain(self._measurement.byte_accesses, self._measurement.outside_of_views):
            if access.is_write and access.task not in self._measurement.measured_by_pages:
                written[access.buffer].add(access.begin, access.end)
        for page in self._measurement.page_accesses:
            for buffer in self._buffers_in_page(page) if page.is_write else ():
                for part in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    written[buffer].add(*part)
        found = []
        for task in sorted(self._measurement.measured, reverse=True):
            for declared, view in self._views(task):
                tag = self._log.accesses["tag"][declared]
                buffer = self._measurement.buffer_of_access(declared)
                if tag not in (OUTPUT, OUTPUT_EXISTING) or buffer.owner >= 0:
                    continue
                known = written[buffer]
                rest = ByteSet(gap for part in view for gap in known.missing(*part))
                if len(rest):
                    why = f"declared {self._graph.tag(declared)}"
                    found.append(self._mismatch(task, buffer, rest, "does not write", why))
                    for begin, end in rest:
                        known.add(begin, end)
        yield from reversed(found)
        if not self._log.has_accesses:
            yield from self._unwritten_results(written)

    def _unwritten_results(self, written: Mapping[NamedBuffer, ByteSet]) -> Iterator[Mismatch]:
        """Find bytes of outputs of the run that no task writes, if tasks declare nothing."""
        known_tasks = {access.task for access in self._measurement.byte_accesses}
        if len(known_tasks | self._measurement.measured) < len(self._graph):
            return  # the accesses of some tasks are not known
        known = ByteSet(part for parts in written.values() for part in parts)
        for name, address, output in self._measurement.buffers.outputs():
            rest = ByteSet(gap for part in output for gap in known.missing(*part))
            if len(rest):
                begin, end = (at - address for at in rest.hull)
                why = "an output of the run"
                yield Mismatch(None, name, begin, end, len(rest), "writes", why)

    def uninitialised_reads(self) -> Iterator[Mismatch]:
        """Find bytes that a task reads and that neither the run nor an earlier task wrote."""
        undefined = lru_cache(maxsize=None)(self._undefined)
        written: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
        by_task: dict[int, list[tuple[bool, NamedBuffer, int, int]]] = defaultdict(list)
        outside = (access for access in self._measurement.outside_of_views if access.is_write)
        for access in chain(self._measurement.byte_accesses, outside):
            if access.task in self._measurement.measured_by_pages and not access.is_write:
                continue
            if undefined(access.buffer).within(access.begin, access.end):
                by_task[access.task].append((access.is_write, *access[1:4]))
        for task, accesses in by_task.items():
            wrong: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
            for is_write, buffer, begin, end in sorted(accesses):
                if is_write:
                    written[buffer].add(begin, end)
                    continue
                for part in undefined(buffer).within(begin, end):
                    for low, high in written[buffer].missing(*part):
                        wrong[buffer].add(low, high)
            for buffer, unknown in wrong.items():
                yield self._mismatch(task, buffer, unknown, "reads", "no earlier task wrote them")

    def _undefined(self, buffer: NamedBuffer) -> ByteSet:
        """Return the bytes of a buffer that have no content before the first task."""
        if buffer.owner >= 0:
            return ByteSet([(buffer.begin, buffer.end)])
        return self._measurement.buffers.undefined(buffer.begin, buffer.end)

    def _is_input(self, buffer: NamedBuffer) -> bool:
        """Return whether a buffer is an argument of the run that is not copied back."""
        return self._measurement.buffers.is_input(buffer.begin, buffer.end)

    def _buffers_in_page(self, page: PageAccess) -> list[NamedBuffer]:
        """Return the buffers of a task that have bytes in a page."""
        return [
            buffer
            for buffer in self._measurement.buffers_of_task(page.task)
            if buffer.begin < page.end and page.begin < buffer.end
        ]

    def _may_write(self, page: PageAccess, buffers: list[NamedBuffer]) -> bool:
        """Return whether a task may write some of the bytes of a page, or no buffer is there."""
        if not buffers:
            return True
        if self._log.has_accesses:
            return bool(self._writable(page.task).within(page.begin, page.end))
        return not all(map(self._is_input, buffers))

    def _find_views(self, task: int) -> list[tuple[int, ByteSet]]:
        """Return the accesses that a task declares, with their bytes."""
        rows = self._log.accesses
        accesses = self._measurement.declared_accesses(task)
        return [(access, ByteSet(view_ranges(rows[access]))) for access in accesses]

    def _find_writable(self, task: int) -> ByteSet:
        """Return the bytes that a task may write; NO_DEP permits everything."""
        tags = self._log.accesses["tag"]
        views = (view for access, view in self._views(task) if tags[access] != INPUT)
        return ByteSet(part for view in views for part in view)

    def _mismatch(
        self, task: int, buffer: NamedBuffer, found: ByteSet, verb: str, why: str
    ) -> Mismatch:
        begin, end = (at - buffer.begin for at in found.hull)
        return Mismatch(self._graph.task(task), buffer.name, begin, end, len(found), verb, why)
