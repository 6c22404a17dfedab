"""Draw several tasks of a large graph as one node: by repeated structure, scope, or kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise, product, zip_longest
from typing import TYPE_CHECKING

import numpy as np

from pto_core.errors import UsageError
from pto_insight.graphs.drawing import (
    STYLES,
    Box,
    Drawing,
    Line,
    Node,
    kernel_colours,
    source_text,
    styles,
    task_node,
    whole,
)
from pto_insight.graphs.repeats import Unit, units

if TYPE_CHECKING:
    from pto_insight.graphs.log import Rows
    from pto_insight.graphs.logged_graph import LoggedGraph

FOLD_ABOVE = 100
MOST_NODES = 200
MOST_LINES = 500
_MOST_NAMES = 6


def drawing(graph: LoggedGraph, fold: str | None) -> Drawing:
    """Return the picture of a graph; see ``TaskGraph.to_svg``. Raises UsageError."""
    if fold is not None and fold not in FOLDS:
        raise UsageError(
            f"fold is {fold!r}; pass 'auto', 'repeat', 'scope', 'kernel' or None",
            name="fold",
            value=fold,
            expected="auto, repeat, scope or kernel",
        )
    if fold is None or (fold == "auto" and len(graph) <= FOLD_ABOVE):
        return whole(graph)
    if fold != "auto":
        return _noted(graph, _FOLDED[fold](graph))
    for kind in ("repeat", "scope"):
        folded = _FOLDED[kind](graph)
        if len(folded.lines) <= MOST_LINES and sum(1 for _ in folded.nodes) <= MOST_NODES:
            return _noted(graph, folded)
    return _noted(graph, _by_kernel(graph))


def _noted(graph: LoggedGraph, folded: Drawing) -> Drawing:
    nodes = sum(1 for _ in folded.nodes)
    folded.note = f"folded: {len(graph)} tasks in {nodes} nodes; --fold none draws each task"
    return folded


def _by_scope(graph: LoggedGraph) -> Drawing:
    scopes = graph.structure.scopes

    def key(task: int) -> tuple[str, object]:
        scope = graph.structure.scope_of(task)
        if scope is None:
            return ("task", task)
        while (parent := scopes[scope].parent) is not None:
            scope = parent
        return ("scope", scope)

    return _grouped(graph, key, "scope")


def _by_kernel(graph: LoggedGraph) -> Drawing:
    return _grouped(graph, lambda task: ("kernel", graph.task(task).kernel), "kernel")


def _grouped(graph: LoggedGraph, key_of: Callable[[int], tuple[str, object]], by: str) -> Drawing:
    """Draw the tasks with the same key as one node."""
    members: dict[tuple[str, object], list[int]] = {}
    for index in range(len(graph)):
        members.setdefault(key_of(index), []).append(index)
    node_of = np.zeros(len(graph), np.int64)
    colours = kernel_colours(graph)
    root = Box("")
    for (kind, name), tasks in members.items():
        node_of[tasks] = tasks[0]
        if len(tasks) == 1:
            root.nodes.append(task_node(graph.task(tasks[0]), colours))
            continue
        kernels = Counter(graph.task(task).kernel for task in tasks)
        parts = ", ".join(f"{count} {kernel}" for kernel, count in kernels.most_common(3))
        more = ", ..." if len(kernels) > 3 else ""
        title = str(name) if by == "kernel" else f"{kind} {name}"
        detail = f"{len(tasks)} tasks" if by == "kernel" else f"{parts}{more}"
        colour = colours.get(next(iter(kernels)), "") if len(kernels) == 1 else ""
        tip = f"{title}: {parts}{more}"
        root.nodes.append(Node(tasks[0], title, detail, tip, True, colour=colour))
    rows = graph.edge_rows
    return Drawing(root, _lines(graph, node_of, node_of[rows["first"]] != node_of[rows["second"]]))


def _lines(graph: LoggedGraph, node_of: Rows, is_drawn: Rows) -> list[Line]:
    """Return a line for all drawn edges between two nodes, in the style that most of them have."""
    rows, style_of = graph.edge_rows[is_drawn], np.array(styles(graph))[is_drawn]
    found: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    ends = node_of[rows["first"]].tolist(), node_of[rows["second"]].tolist()
    for first, second, style in zip(*ends, style_of.tolist(), strict=True):
        found[first, second][style] += 1
    lines = []
    for (first, second), counts in found.items():
        tip = [f"{count} edges: {STYLES[name].meaning}" for name, count in counts.most_common()]
        lines.append(Line(first, second, counts.most_common(1)[0][0], "\n".join(tip)))
    return lines


@dataclass
class _Part:
    """What is drawn for a unit: a node for all tasks at its place, or a box for a loop.

    ``number``: the first task. ``loop``: the number of the loop, and ``count`` how often each of
    its executions runs ``body``.
    """

    number: int
    tasks: int = 1
    body: list[_Part] = field(default_factory=list)
    loop: int = -1
    count: str = ""


class _Repeats:
    """The drawing of the units of a graph (``repeats.py``): one iteration of each loop, in a box.

    Edges between two iterations of a loop are counted in the title of its box. All other edges are
    lines between the nodes of their tasks.
    """

    def __init__(self, graph: LoggedGraph) -> None:
        self._graph = graph
        self._colours = kernel_colours(graph)
        self._node_of = np.zeros(len(graph), np.int64)
        self._depths: list[tuple[Rows, Rows]] = []  # of each task: its loop, and its iteration
        self._loops = 0
        parts = [part for unit in units(graph) for part in self._parts([unit], 0)]
        is_between = self._count_between()
        lines = _lines(graph, self._node_of, ~is_between)
        self._pairs = {(line.first, line.second) for line in lines}
        self.drawing = Drawing(Box(""), lines)
        for part in parts:
            self._draw(self.drawing.box, part)

    def _parts(self, instances: list[Unit], depth: int) -> list[_Part]:
        """Return what is drawn for a unit that the loops around it execute several times."""
        first = instances[0].first
        if not instances[0].iterations:
            self._node_of[[unit.first for unit in instances]] = first
            return [_Part(first, len(instances))]
        bodies = [body for unit in instances for body in unit.iterations]
        counts = sorted({len(unit.iterations) for unit in instances})
        while len(bodies[0]) == 1 and all(len(body[0].iterations) == 1 for body in bodies):
            bodies = [body[0].iterations[0] for body in bodies]
        is_loop = counts != [1]
        loop = self._loops
        if is_loop:
            self._loops += 1
            self._mark(bodies, loop, depth)
        places = map(list, zip(*bodies, strict=True))
        body = [part for place in places for part in self._parts(place, depth + is_loop)]
        if not is_loop:
            return body
        count = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        return [_Part(first, body=body, loop=loop, count=count)]

    def _mark(self, bodies: list[tuple[Unit, ...]], loop: int, depth: int) -> None:
        """Note the loop and the iteration of each task of a loop."""
        if len(self._depths) == depth:
            size = len(self._graph)
            self._depths.append((np.full(size, -1), np.full(size, -1)))
        loops, iterations = self._depths[depth]
        for number, body in enumerate(bodies):
            mine = slice(body[0].first, body[-1].end)
            loops[mine], iterations[mine] = loop, number

    def _count_between(self) -> Rows:
        """Count the edges between iterations of each loop; return which edges these are."""
        first, second = (self._graph.edge_rows[name] for name in ("first", "second"))
        self._between = np.zeros(self._loops, np.int64)
        is_between = np.zeros(len(first), bool)
        for loops, iterations in self._depths:
            found = (loops[first] == loops[second]) & (iterations[first] != iterations[second])
            found &= ~is_between
            self._between += np.bincount(loops[first[found]], minlength=self._loops)
            is_between |= found
        return is_between

    def _draw(self, box: Box, part: _Part) -> str:
        """Add a part to a box; return its name."""
        if not part.body:
            node = self._node(part, "")
            box.nodes.append(node)
            return node.title
        edges = self._between[part.loop]
        note = f"{edges} edges between iterations" if edges else ""
        if len(part.body) == 1 and not part.body[0].body:
            node = self._node(part.body[0], note)
            name = f"{part.count} x {node.title}"
            node.title = name
            box.nodes.append(node)
            return name
        inner = Box("", kind="loop")
        names = [self._draw(inner, each) for each in part.body]
        arrows = [
            " -> " if self._is_linked(*pair) else ", " for pair in pairwise(part.body[:_MOST_NAMES])
        ]
        shown = "".join(chain(*zip_longest(names[:_MOST_NAMES], arrows, fillvalue="")))
        more = ", ..." if len(names) > _MOST_NAMES else ""
        name = f"{part.count} x {{{shown}{more}}}"
        inner.title = ", ".join(filter(None, (name, note)))
        box.boxes.append(inner)
        return name

    def _is_linked(self, first: _Part, second: _Part) -> bool:
        """Return whether a line leads from one part to another one."""
        ends = product(_numbers(first), _numbers(second))
        return any(pair in self._pairs for pair in ends)

    def _node(self, part: _Part, note: str) -> Node:
        """Return the node of all tasks at one place of a loop."""
        task = self._graph.task(part.number)
        node = task_node(task, self._colours)
        if part.tasks > 1:
            source = source_text(task.file, task.line).strip()
            tasks = f"{part.tasks} tasks"
            node.title = task.kernel
            node.detail = ", ".join(filter(None, (note, source or tasks)))
            node.tip = "\n".join(filter(None, (task.kernel, task.core, tasks, note, task.where)))
            node.is_several = True
        return node


def _numbers(part: _Part) -> Iterator[int]:
    if not part.body:
        yield part.number
    for inner in part.body:
        yield from _numbers(inner)


_FOLDED: dict[str, Callable[[LoggedGraph], Drawing]] = {
    "repeat": lambda graph: _Repeats(graph).drawing,
    "scope": _by_scope,
    "kernel": _by_kernel,
}
FOLDS = ("auto", *_FOLDED)
