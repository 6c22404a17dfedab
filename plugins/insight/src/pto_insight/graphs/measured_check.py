"""The check of measured accesses: tasks that race by the bytes that they really access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pto_insight.graphs.byte_set import ByteSet
from pto_insight.graphs.declarations import Declarations
from pto_insight.graphs.findings import Findings, Race
from pto_insight.graphs.fixes import existing_output, mark_implied, missing_edge
from pto_insight.graphs.logged_graph import LoggedGraph, Task
from pto_insight.graphs.measurement import ByteAccess, Measurement, NamedBuffer
from pto_insight.graphs.reasons import CONFLICT

Shared = tuple[tuple[ByteAccess, ByteAccess], int, int]
"""Two accesses that conflict, and the range of bytes that both have."""


def check_measured(graph: LoggedGraph, declared: Findings, limit: int) -> Findings:
    """Return the findings for a graph whose accesses were measured.

    ``declared``: the findings by what the tasks declare.
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
        unmeasured=len(graph) - len(measurement.measured),
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
        """Find the blocks of one task that access the same bytes, one of them writing."""
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
        self, buffer: NamedBuffer, shared: ByteSet, sides: list[tuple[Task, str]], fix: str
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

    def _wrong_declaration(self, task: Task, buffer: NamedBuffer, use: str, tags: list[str]) -> str:
        """Return the change of a declaration that does not cover the use, or an empty text."""
        if not self._graph.log.has_accesses or task.index not in self.measurement.measured_by_bytes:
            return ""
        is_wrong = "writes" in use and "INPUT" in tags and len(set(tags)) == 1
        if tags and "NO_DEP" not in tags and not is_wrong:
            return ""
        needed = {"reads": "INPUT", "writes": "OUTPUT"}.get(use, "INOUT")
        return f"declare {buffer.name} of {task.label} as {needed}"

    def _missing_edge(self, first: Task, second: Task, tags: list[str]) -> str:
        if self._graph.log.has_accesses and "OUTPUT_EXISTING" in tags:
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
