"""The race check: pairs of tasks that touch the same bytes and that nothing orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pto_core.errors import UnsupportedError
from pto_insight.graphs.findings import Findings, Race
from pto_insight.graphs.fixes import existing_output, mark_implied, missing_edge
from pto_insight.graphs.measured_check import check_measured
from pto_insight.graphs.places import INOUT, INPUT, NO_DEP, OUTPUT, OUTPUT_EXISTING
from pto_insight.graphs.reasons import CONFLICT

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import Access, LoggedGraph, Task


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
        is_declared = NO_DEP in both or both[1] == OUTPUT_EXISTING
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


def _fix(graph: LoggedGraph, accesses: tuple[int, int], tasks: tuple[Task, Task]) -> str:
    tags = [int(graph.log.accesses[access]["tag"]) for access in accesses]
    for tag, access, task in zip(tags, accesses, tasks, strict=True):
        if tag == NO_DEP:
            return f"declare {graph.places.of(access).text} of {task.label} as INPUT"
    first, second = tasks
    if tags[1] == OUTPUT_EXISTING:
        return existing_output(second)
    return missing_edge(graph.log, first, second)


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
