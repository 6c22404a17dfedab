"""The graph of a program: questions about it, its races, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pto_insight.graphs.check import check
from pto_insight.graphs.document import document
from pto_insight.graphs.dot import dot
from pto_insight.graphs.explanation import Explanation, explain
from pto_insight.graphs.files import save
from pto_insight.graphs.findings import Findings
from pto_insight.graphs.logged_graph import Access, LoggedGraph
from pto_insight.graphs.svg import svg
from pto_insight.graphs.writers import last_writers


class TaskGraph(LoggedGraph):
    """The graph of a program, computed from the accesses of one run.

    It does not depend on the timing of that run. Tasks are numbered from 0 in the order of submits.
    """

    def why(self, second: str | int, first: str | int) -> Explanation:
        """Explain why task ``second`` waits for task ``first``: a chain of edges, or none."""
        return explain(self, self.find(first), self.find(second))

    def check(self, limit: int = 10_000) -> Findings:
        """Find races, outputs that no task reads, and reads that no task wrote.

        At most ``limit`` pairs of accesses are listed. If the log is measured, the bytes that
        kernels really touched decide. Raises UnsupportedError if nothing is known about accesses:
        the runtime does not derive edges from them, and they were not measured.
        """
        return check(self, limit)

    def last_writers(self, buffer: str, byte: int) -> list[Access]:
        """Return the accesses that may have written a byte of an argument of the run last.

        There are several if nothing orders their tasks, and none if no task declares that it writes
        the byte.
        """
        return last_writers(self, buffer, byte)

    def to_json(self) -> dict[str, Any]:
        """Return the graph as plain data, for other tools."""
        return document(self)

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

    def save(self, path: str | Path, fold: str | None = "auto") -> None:
        """Write the graph to a ``.svg``, ``.dot`` or ``.json`` file. Raises UsageError."""
        save(self, path, fold)
