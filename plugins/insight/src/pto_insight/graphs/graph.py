"""The graph of a program: questions about it, its races, its pictures and its files."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pto_core.errors import UsageError
from pto_core.errors.values import suggestion
from pto_core.output_files import printable, write_text
from pto_insight.graphs.check import check
from pto_insight.graphs.findings import Findings
from pto_insight.graphs.log import Rows
from pto_insight.graphs.logged_graph import Access, Edge, LoggedGraph, LoggedTask
from pto_insight.graphs.measurement import ByteSet, Measurement, view_ranges
from pto_insight.graphs.pictures import dot, svg
from pto_insight.graphs.places import INPUT, NO_DEP, ViewLayout, element_bytes

FORMATS = ("svg", "dot", "json")
SCHEMA_VERSION = 1


class TaskGraph(LoggedGraph):
    """The graph of a program, computed from the accesses of one run.

    It does not depend on the timing of that run. Tasks are numbered from 0 in the order of submits.
    """

    def why(self, second: str | int, first: str | int) -> Explanation:
        """Explain why task ``second`` waits for task ``first``: a chain of edges, or none."""
        return explain(self, self.find(first), self.find(second))

    def check(self, limit: int = 10_000) -> Findings:
        """Find races, outputs that no task reads, and reads of memory that no task wrote.

        At most ``limit`` pairs of accesses are listed. If the log is measured, the check uses the
        bytes that kernels really touched. Raises UnsupportedError if the log has no accesses: the
        runtime does not derive edges from accesses, and they were not measured.
        """
        return check(self, limit)

    def last_writers(self, buffer: str, byte: int) -> list[Access]:
        """Return the accesses that may have written a byte of an argument of the run last.

        There are several if nothing orders their tasks, or if some are not certain, and none if no
        task declares that it writes the byte.
        """
        return last_writers(self, buffer, byte)

    def writers_before(self, access: int, most_uncertain: int) -> list[Access]:
        """Return the accesses that can have written the bytes of an access last, the newest first.

        Of those that are not certain, the newest ``most_uncertain`` are listed.
        """
        return writers_before(self, access, most_uncertain)

    def to_json(self) -> dict[str, Any]:
        """Return the graph as dicts, lists, texts and numbers, for other tools.

        The keys are the members of tasks, edges, scopes and clusters. No address is part of it.
        """
        return {
            "version": SCHEMA_VERSION,
            "hazards": "full" if self.log.is_full else "raw",
            "tasks": [{**asdict(task), "clusters": list(task.clusters)} for task in self.tasks],
            "edges": [
                {
                    "first": edge.first,
                    "second": edge.second,
                    "is_redundant": edge.is_redundant,
                    "is_conservative": edge.is_conservative,
                    "is_disjoint": edge.is_disjoint,
                    "reasons": [
                        {**asdict(reason), "why": reason.why.name.lower()}
                        for reason in edge.reasons
                    ],
                }
                for edge in self.edges
            ],
            "scopes": [asdict(scope) for scope in self.structure.scopes],
            "clusters": [
                {**asdict(cluster), "tasks": list(cluster.tasks)}
                for cluster in self.structure.clusters
            ],
        }

    def to_dot(self, fold: str | None = "auto") -> str:
        """Return the graph in the language of Graphviz. ``fold``: see :meth:`to_svg`."""
        return dot(self, fold)

    def to_svg(self, fold: str | None = "auto") -> str:
        """Return the graph as a picture.

        ``fold`` draws several tasks as one node: ``"repeat"``, ``"scope"``, ``"kernel"``, None for
        each task, or ``"auto"``, which folds a graph of more than 100 tasks by the first of these
        that leaves at most 200 nodes and 500 edges. ``"repeat"`` draws one iteration of each loop.
        """
        return svg(self, fold)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def save(self, path: str | Path, fold: str | None = "auto") -> None:
        """Write the graph to a ``.svg``, ``.dot`` or ``.json`` file. Raises UsageError."""
        path = Path(path)
        write_text(path, text_of(self, format_of(path), fold))


@dataclass(frozen=True)
class Explanation:
    """A shortest chain of edges from ``first`` to ``second``; empty if ``second`` does not wait.

    ``is_reversed``: ``first`` waits for ``second``. Without it and without a chain, nothing orders
    the two tasks.
    """

    first: LoggedTask
    second: LoggedTask
    chain: tuple[tuple[LoggedTask, Edge], ...]
    is_reversed: bool = False

    def __bool__(self) -> bool:
        return bool(self.chain)

    def __str__(self) -> str:
        if self.is_reversed:
            return (
                f"{self.second.label} does not wait for {self.first.label}: "
                f"{self.first.label} waits for {self.second.label}; ask for them in the other order"
            )
        if not self.chain:
            return (
                f"nothing orders {self.second.label} after {self.first.label}: "
                "they can run at the same time, or in either order"
            )
        lines = [f"{self.second.label} waits for {self.first.label}:", _line(self.first)]
        for task, edge in self.chain:
            lines.append(_line(task))
            lines += [f"      {reason}" for reason in edge.reasons]
        return "\n".join(lines)


def explain(graph: LoggedGraph, first: int, second: int) -> Explanation:
    """Return the explanation for two tasks. ``first`` need not be the earlier submit.

    Raises UsageError if both are the same task.
    """
    ends = graph.task(first), graph.task(second)
    if first == second:
        raise UsageError(
            f"both names are of one task, {ends[0].label}; name two tasks",
            name="task",
            value=first,
        )
    if not graph.is_before(first, second):
        return Explanation(*ends, (), is_reversed=graph.is_before(second, first))
    into: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, edge in enumerate(graph.edge_rows):
        into[int(edge["second"])].append((int(edge["first"]), row))
    next_edge: dict[int, tuple[int, int]] = {}
    queue = deque([second])
    while first not in next_edge:
        task = queue.popleft()
        for producer, row in into[task]:
            if producer not in next_edge:
                next_edge[producer] = (task, row)
                queue.append(producer)
    chain = []
    at = first
    while at != second:
        at, row = next_edge[at]
        chain.append((graph.task(at), graph.edge_at(row)))
    return Explanation(*ends, tuple(chain))


def _line(task: LoggedTask) -> str:
    return f"  {task.label}" + (f"  {task.where}" if task.where else "")


def last_writers(graph: LoggedGraph, buffer: str, byte: int) -> list[Access]:
    """Return the accesses that may have written a byte of a buffer last.

    ``buffer`` is the name of an argument of the run; another name raises UsageError.
    """
    if graph.log.is_measured:
        return _measured_writers(graph, buffer, byte)
    rows = graph.log.accesses
    buffers = {known.name: known for known in graph.log.buffers}
    if buffer not in buffers:
        known = ", ".join(sorted(buffers))
        raise UsageError(
            f"no argument of the run is called {buffer!r}{suggestion(buffer, sorted(buffers))}; "
            f"arguments: {known}",
            name="buffer",
            value=buffer,
        )
    address = buffers[buffer].address + byte
    writes = ~np.isin(rows["tag"], (INPUT, NO_DEP)) & (rows["owner"] < 0)
    near = writes & (rows["address"] <= address) & (address < rows["address"] + rows["size"])
    found = [int(access) for access in np.flatnonzero(near) if _has(rows[access], address)]
    tasks = {int(graph.task_of_access[access]): access for access in found}
    return _last(graph, [graph.access(access) for access in tasks.values()])


def _last(graph: LoggedGraph, writers: list[Access]) -> list[Access]:
    """Return the writers that no certain writer follows."""
    certain = [writer.task.index for writer in writers if writer.is_certain]
    return [
        writer
        for writer in writers
        if not any(graph.is_before(writer.task.index, other) for other in certain)
    ]


def writers_before(graph: LoggedGraph, access: int, most_uncertain: int) -> list[Access]:
    """Return the accesses that can have written the bytes of an access last, the newest first."""
    rows, extents = graph.log.accesses, graph.extents
    begin, end = extents[access]
    is_writer = ~np.isin(rows["tag"], (INPUT, NO_DEP)) & (rows["owner"] == rows[access]["owner"])
    is_writer &= (extents[:, 0] < end) & (begin < extents[:, 1])
    before = graph.task_of_access < graph.task_of_access[access]
    found: list[Access] = []
    left = ByteSet(view_ranges(rows[access]))
    for one in np.flatnonzero(is_writer & before)[::-1].tolist():
        writer, written = graph.access(one), ByteSet(view_ranges(rows[one]))
        if not any(written.within(*part) for part in left):
            continue
        if writer.is_certain:
            left = ByteSet(part for range_ in left for part in written.missing(*range_))
        elif (most_uncertain := most_uncertain - 1) < 0:
            continue
        found.append(writer)
        if not left:
            break
    return found


def _measured_writers(graph: LoggedGraph, buffer: str, byte: int) -> list[Access]:
    """Return the last writers by the bytes that tasks wrote."""
    measurement = Measurement(graph)
    tasks = {
        access.task
        for access in chain(measurement.byte_accesses, measurement.outside_of_views)
        if access.is_write
        and access.buffer.name == buffer
        and access.begin <= access.buffer.begin + byte < access.end
    }
    is_of_host, ends = graph.log.is_of_host, graph.log.tasks["accesses"]
    return _last(
        graph,
        [
            graph.access(int(ends[task]) - 1)  # it has one
            if is_of_host[task]
            else Access(graph.task(task), buffer, "writes")
            for task in sorted(tasks)
        ],
    )


def _has(row: Rows, address: int) -> bool:
    """Return whether the view of an access has the byte at an address."""
    layout, size = ViewLayout(row), element_bytes(row)
    first = int(row["address"]) + (int(row["start_offset"]) - layout.start) * size
    element = (address - first) // size
    if address < first or element >= layout.size:
        return False
    for dim in reversed(layout.order):
        at, element = divmod(element, layout.strides[dim])
        offset = int(row["offsets"][dim])
        if not offset <= at < offset + int(row["shapes"][dim]):
            return False
    return True


def text_of(graph: TaskGraph, file_format: str, fold: str | None) -> str:
    """Return the graph in one of ``FORMATS``."""
    if file_format == "json":
        return json.dumps(graph.to_json(), indent=1) + "\n"
    return printable(dot(graph, fold) if file_format == "dot" else svg(graph, fold))


def format_of(path: Path) -> str:
    """Return the format that the ending of a path selects. Raises UsageError."""
    ending = path.suffix.removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(
            f"the graph cannot be written to {path}; the file name must end in .svg, .dot or .json",
            name="path",
            value=str(path),
        )
    return ending
