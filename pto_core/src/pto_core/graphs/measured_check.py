"""The check of measured accesses: tasks that race by the bytes that they really touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pto_core.graphs.byte_set import ByteSet
from pto_core.graphs.declarations import Declarations
from pto_core.graphs.findings import Findings, Race
from pto_core.graphs.fixes import existing_output, mark_implied, missing_edge
from pto_core.graphs.logged_graph import LoggedGraph, Task
from pto_core.graphs.measurement import Measurement, Memory, Touch
from pto_core.graphs.reasons import CONFLICT

Shared = tuple[tuple[Touch, Touch], int, int]
"""Two touches that conflict, and the range of bytes that both have."""


def check_measured(graph: LoggedGraph, declared: Findings, limit: int) -> Findings:
    """Return the findings for a graph whose accesses were measured.

    ``declared``: the findings by what the tasks declare.
    """
    check = _Check(graph)
    found, is_complete = check.races(limit)
    # If tasks declare nothing, the bytes of a binary kernel are those of whole pages.
    coarse = set() if graph.log.has_accesses else check.measurement.paged
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
        paged=len(measurement.paged),
        unmeasured=len(graph) - len(measurement.measured) - len(measurement.paged),
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
        touches = self.measurement.touches
        pairs: dict[tuple[int, int, Memory], list[Shared]] = defaultdict(list)
        for row in np.frombuffer(packed, CONFLICT):
            first, second = touches[row["first"]], touches[row["second"]]
            shift = first.begin - int(conflicts.extents[row["first"]][0])
            shared = int(row["first_byte"]) + shift, int(row["last_byte"]) + shift
            pairs[first.task, second.task, first.memory].append(((first, second), *shared))
        found = sorted(pairs.items(), key=lambda pair: pair[0])
        return [self._race(rows) for _, rows in found], is_complete

    def races_of_blocks(self) -> Iterator[Race]:
        """Find the blocks of one task that touch the same bytes, one of them writing."""
        by_task: dict[int, list[Touch]] = defaultdict(list)
        for touch in self.measurement.touches:
            if self._graph.log.tasks["blocks"][touch.task] > 1:
                by_task[touch.task].append(touch)
        for index, touches in by_task.items():
            for first, second in _overlap_of_blocks(touches):
                task = self._graph.task(index)
                sides = [
                    (task, f"block {touch.block} {_use({touch.is_write})}")
                    for touch in (first, second)
                ]
                shared = ByteSet([(max(first.begin, second.begin), min(first.end, second.end))])
                yield self._report(
                    first.memory, shared, sides, "let each block write bytes of its own"
                )

    def _race(self, rows: list[Shared]) -> Race:
        memory = rows[0][0][0].memory
        shared = ByteSet((low, high) for _, low, high in rows)
        sides, fixes = [], []
        for side in (0, 1):
            task = self._graph.task(rows[0][0][side].task)
            use = _use({touches[side].is_write for touches, _, _ in rows})
            tags = self.declarations.tags(task.index, memory, shared)
            fixes.append(self._wrong_declaration(task, memory, use, tags))
            sides.append((task, f"{use}, declared {' and '.join(tags)}" if tags else use))
        fix = fixes[0] or fixes[1] or self._missing_edge(sides[0][0], sides[1][0], tags)
        return self._report(memory, shared, sides, fix)

    def _report(
        self, memory: Memory, shared: ByteSet, sides: list[tuple[Task, str]], fix: str
    ) -> Race:
        begin, end = (at - memory.begin for at in shared.hull)
        (first, first_use), (second, second_use) = sides
        return Race(
            first=first,
            second=second,
            first_tag=first_use,
            second_tag=second_use,
            first_place=memory.name,
            second_place=memory.name,
            buffer=memory.name,
            begin=begin,
            end=end,
            shared_bytes=len(shared),
            others=0,
            fix=fix,
        )

    def _wrong_declaration(self, task: Task, memory: Memory, use: str, tags: list[str]) -> str:
        """Return the change of a declaration that does not cover the use, or an empty text."""
        if not self._graph.log.has_accesses or task.index not in self.measurement.measured:
            return ""
        is_wrong = "writes" in use and "INPUT" in tags and len(set(tags)) == 1
        if tags and "NO_DEP" not in tags and not is_wrong:
            return ""
        needed = {"reads": "INPUT", "writes": "OUTPUT"}.get(use, "INOUT")
        return f"declare {memory.name} of {task.label} as {needed}"

    def _missing_edge(self, first: Task, second: Task, tags: list[str]) -> str:
        if self._graph.log.has_accesses and "OUTPUT_EXISTING" in tags:
            return existing_output(second)
        return missing_edge(self._graph.log, first, second)


def _use(writes: set[bool]) -> str:
    if len(writes) == 2:
        return "reads and writes"
    return "writes" if True in writes else "reads"


def _overlap_of_blocks(touches: list[Touch]) -> list[tuple[Touch, Touch]]:
    """Return a pair of touches of two blocks that conflict, if there is one."""
    last: dict[bool, Touch] = {}  # of the reads and of the writes: the touch that ends last
    for touch in sorted(touches, key=lambda touch: touch.begin):
        for is_write, other in last.items():
            is_conflict = touch.is_write or is_write
            if is_conflict and other.block != touch.block and touch.begin < other.end:
                return [(other, touch)]
        known = last.get(touch.is_write)
        if known is None or known.end <= touch.end:
            last[touch.is_write] = touch
    return []
