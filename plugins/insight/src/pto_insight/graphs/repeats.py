"""Repeated structure in a graph: the loops of a program, found in the order of its submits.

The submits of a program are its unrolled loops. They are a sequence of *units*. At first, each task
is a unit. Two tasks have the same *shape* if they run the same kernel with the same blocks from the
same source line. The algorithm makes longer units of shorter ones:

1. Units of a scope that follow each other with the same shapes, period after period, become one
   unit, a loop: A B A B A B is a loop of three iterations of A B. Iterations must also have the
   same edges between their own units; otherwise they become different loops. Short periods are
   tried first, and the search is repeated until nothing changes, which finds loops of loops.
2. A scope becomes one unit of the scope around it: a loop with one iteration. A scope that contains
   one unit becomes this unit.

Two loops have the same shape if their iterations do. The numbers of their iterations may differ.
A tree of units contains each task exactly once, so nothing is lost or merged that differs in
kernel, source line, or edges inside of an iteration.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from pto_insight.graphs.log import Rows

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph

LONGEST_PERIOD = 256


@dataclass(frozen=True)
class Unit:
    """Tasks ``first`` to ``end`` - 1: a task, or a loop with its iterations."""

    shape: int
    first: int
    end: int
    iterations: tuple[tuple[Unit, ...], ...] = ()


def units(graph: LoggedGraph) -> list[Unit]:
    """Return the units of a graph, in the order of submits."""
    return _Search(graph).found


class _Search:
    def __init__(self, graph: LoggedGraph) -> None:
        self._edges = graph.edge_rows
        self._shapes: dict[Hashable, int] = {}
        fields = graph.log.tasks[["func_id", "blocks", "file", "line"]].tolist()
        clusters = graph.structure.clusters_of
        tasks = [
            Unit(self._shape((*row, len(clusters(task)))), task, task + 1)
            for task, row in enumerate(fields)
        ]
        scopes = graph.structure.scopes
        inner: dict[int | None, list[int]] = {}
        for scope in scopes:
            inner.setdefault(scope.parent, []).append(scope.index)

        def content(scope: int | None, first: int, end: int) -> list[Unit]:
            """Return the units of a scope, or of the program; ``first``, ``end``: its tasks."""
            found = []
            for index in inner.get(scope, ()):
                found += tasks[first : scopes[index].first]
                found += self._as_unit(content(index, scopes[index].first, scopes[index].end))
                first = scopes[index].end
            return self._folded(found + tasks[first:end])

        self.found = content(None, 0, len(tasks))

    def _shape(self, key: Hashable) -> int:
        return self._shapes.setdefault(key, len(self._shapes))

    def _as_unit(self, content: list[Unit]) -> list[Unit]:
        """Return the content of a scope as at most one unit."""
        if len(content) < 2:
            return content
        (edges,) = self._inner_edges(content, len(content))
        return [self._loop([tuple(content)], edges)]

    def _loop(self, iterations: list[tuple[Unit, ...]], edges: bytes) -> Unit:
        shape = self._shape((tuple(unit.shape for unit in iterations[0]), edges))
        return Unit(shape, iterations[0][0].first, iterations[-1][-1].end, tuple(iterations))

    def _folded(self, sequence: list[Unit]) -> list[Unit]:
        """Return the sequence with its repetitions as loops."""
        length = -1
        while length != len(sequence):
            length = len(sequence)
            shapes = np.array([unit.shape for unit in sequence])
            for period in range(1, LONGEST_PERIOD + 1):
                if 2 * period > len(sequence):
                    break
                repeats = _repeats(shapes, period)
                if repeats:
                    sequence = self._with_loops(sequence, repeats, period)
                    shapes = np.array([unit.shape for unit in sequence])
        return sequence

    def _with_loops(
        self, sequence: list[Unit], repeats: list[tuple[int, int]], period: int
    ) -> list[Unit]:
        found: list[Unit] = []
        done = 0
        for begin, end in repeats:
            first = max(begin, done)
            count = (end - first) // period
            if count >= 2:
                found += sequence[done:first]
                done = first + count * period
                found += self._loops(sequence[first:done], period)
        return found + sequence[done:]

    def _loops(self, part: list[Unit], period: int) -> list[Unit]:
        """Return the iterations of a part, joined where neighbours have the same edges."""
        found: list[Unit] = []
        numbered = enumerate(self._inner_edges(part, period))
        for edges, group in groupby(numbered, key=lambda pair: pair[1]):
            starts = [number * period for number, _ in group]
            iterations = [tuple(part[at : at + period]) for at in starts]
            found += iterations[0] if len(iterations) == 1 else [self._loop(iterations, edges)]
        return found

    def _inner_edges(self, part: list[Unit], period: int) -> list[bytes]:
        """Return the edges inside of each iteration, between the places of its units."""
        first, end = part[0].first, part[-1].end
        bounds = np.searchsorted(self._edges["second"], [first, end])
        rows = self._edges[bounds[0] : bounds[1]]
        rows = rows[rows["first"] >= first]
        starts = [unit.first for unit in part]
        before, after = (
            np.searchsorted(starts, rows[name], side="right") - 1 for name in ("first", "second")
        )
        is_inside = (before // period == after // period) & (before != after)
        before, after = before[is_inside], after[is_inside]
        pairs = np.unique(after // period * period**2 + before % period * period + after % period)
        cuts = np.searchsorted(pairs, np.arange(1, len(part) // period) * period**2)
        return [each.tobytes() for each in np.split(pairs % period**2, cuts)]


def _repeats(shapes: Rows, period: int) -> list[tuple[int, int]]:
    """Return the begin and end of each part with at least two periods of the same shapes."""
    same = np.concatenate([[False], shapes[period:] == shapes[:-period], [False]])
    begins, ends = np.flatnonzero(np.diff(same.astype(np.int8))).reshape(-1, 2).T
    ends = ends + period
    is_long = ends - begins >= 2 * period
    return list(zip(begins[is_long].tolist(), ends[is_long].tolist(), strict=True))
