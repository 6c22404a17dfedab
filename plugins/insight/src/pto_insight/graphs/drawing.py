"""The content of a picture: nodes, boxes around them, and edges; the same for DOT and SVG.

A large graph is folded: several tasks become one node, by repeated structure, scope, or kernel.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from colorsys import hls_to_rgb
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise, product, zip_longest
from typing import NamedTuple

import numpy as np

from pto_core.errors import UsageError
from pto_insight.graphs.analysis import Why
from pto_insight.graphs.log import Rows
from pto_insight.graphs.logged_graph import LoggedGraph, LoggedTask


class Style(NamedTuple):
    """How an edge is drawn. ``dash``: lengths of dashes and gaps; empty for a solid line."""

    colour: str
    dash: str
    meaning: str


STYLES = {
    "data": Style("#24292f", "", "reads what the other wrote"),
    "order": Style("#8250df", "", "overwrites what the other wrote or read"),
    "explicit": Style("#0969da", "", "explicit edge"),
    "owner": Style("#57606a", "", "names memory that the other allocated"),
    "cluster": Style("#1a7f37", "", "allocates the cluster that the other freed"),
    "conservative": Style("#bc4c00", "5 3", "by byte hull only"),
    "disjoint": Style("#cf222e", "2 3", "no byte is shared"),
    "redundant": Style("#b6bcc4", "1 3", "implied by other edges"),
}


@dataclass
class Node:
    """A node. ``number``: its place in the order of submits. ``members``: the members of a group.

    The edges of a group end at its border, because they order all of its members. ``colour``: the
    colour of its kernel; empty if its tasks run several kernels.
    """

    number: int
    title: str
    detail: str
    tip: str
    is_several: bool
    members: int = 0
    colour: str = ""


@dataclass
class Box:
    """A box with a title around nodes and other boxes. The picture itself is a box, too.

    ``kind``: ``"scope"``, ``"cluster"`` or ``"loop"``.
    """

    title: str
    nodes: list[Node] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    kind: str = "scope"
    tip: str = ""


@dataclass
class Line:
    """An edge between the nodes with these numbers."""

    first: int
    second: int
    style: str
    tip: str


@dataclass
class Drawing:
    """A picture without positions. ``note``: the folded parts, and how to see all tasks."""

    box: Box
    lines: list[Line]
    note: str = ""

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, in any order."""
        boxes = [self.box]
        while boxes:
            box = boxes.pop()
            yield from box.nodes
            boxes += box.boxes


def whole(graph: LoggedGraph) -> Drawing:
    """Draw each task as a node, with boxes of scopes and clusters."""
    colours = kernel_colours(graph)
    root = Box("")
    boxes: list[Box] = []
    for scope in graph.structure.scopes:
        box = Box(f"scope {scope.index}{source_text(scope.file, scope.line)}")
        boxes.append(box)
        (root if scope.parent is None else boxes[scope.parent]).boxes.append(box)
    clusters: dict[tuple[int | None, int], Box] = {}
    for task in graph.tasks:
        box = root if task.scope is None else boxes[task.scope]
        if len(task.clusters) == 1:
            key = (task.scope, task.clusters[0])
            if key not in clusters:
                clusters[key] = Box(f"cluster {task.clusters[0]}", kind="cluster")
                box.boxes.append(clusters[key])
            box = clusters[key]
        box.nodes.append(task_node(task, colours))
    lines = []
    for edge, style in zip(graph.edges, styles(graph), strict=True):
        ends = f"{graph.task(edge.first).label} → {graph.task(edge.second).label}"
        tip = "\n".join([ends, *map(str, edge.reasons)])
        lines.append(Line(edge.first, edge.second, style, tip))
    return Drawing(root, lines)


def kernel_colours(graph: LoggedGraph) -> dict[str, str]:
    """Return the colour of each kernel, with the hue that it has in the page of a trace."""
    known = [name for _, name in sorted(graph.log.kernels.items())]
    return {name: _colour(number) for number, name in enumerate(dict.fromkeys(known))}


def _colour(number: int) -> str:
    red, green, blue = hls_to_rgb(number * 137.508 % 360 / 360, 0.86, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def task_node(task: LoggedTask, colours: Mapping[str, str]) -> Node:
    """Return the node of one task. ``colours``: the colours of the kernels."""
    count = f"{task.blocks} blocks" if task.blocks else ""
    if task.members:
        count = f"{task.members} members"
    detail = " ".join(filter(None, (count, source_text(task.file, task.line).strip())))
    tip = "\n".join(filter(None, (task.label, task.name, task.core, count, task.where)))
    colour = colours.get(task.kernel, "")
    return Node(task.index, task.label, detail, tip, task.blocks > 1, task.members, colour)


def styles(graph: LoggedGraph) -> list[str]:
    """Return the style of each edge."""
    if not len(graph.edge_rows):
        return []
    reasons, starts = graph.reason_rows, graph.reason_bounds[:-1]
    why = reasons["why"]
    is_conservative = np.logical_and.reduceat(reasons["is_conservative"] != 0, starts)
    shares_bytes = np.logical_or.reduceat(reasons["shared_bytes"] != 0, starts)
    cases = {
        "redundant": graph.edge_rows["is_redundant"] != 0,
        "disjoint": is_conservative & ~shares_bytes,
        "conservative": is_conservative,
        "data": np.logical_or.reduceat(why == Why.READ, starts),
        "explicit": np.logical_or.reduceat(
            np.isin(why, (Why.EXPLICIT, Why.RETAINING, Why.HOST)), starts
        ),
        "cluster": np.logical_and.reduceat(why == Why.CLUSTER, starts),
        "owner": np.logical_and.reduceat(why == Why.OWNER, starts),
    }
    found: list[str] = np.select(list(cases.values()), list(cases), "order").tolist()
    return found


def source_text(file: str | None, line: int | None) -> str:
    """Return the end of a title that names a source line."""
    return f"  {file.rpartition('/')[2]}:{line}" if file else ""


# ---- repeated structure: the loops of a program, found in the order of its submits ----
#
# The submits of a program are its unrolled loops. They are a sequence of *units*. At first, each
# task is a unit. Two tasks have the same *shape* if they run the same kernel with the same blocks
# from the same source line. The algorithm makes longer units of shorter ones:
#
# 1. Units of a scope that follow each other with the same shapes, period after period, become one
#    unit, a loop: A B A B A B is a loop of three iterations of A B. Iterations must also have the
#    same edges between their own units; otherwise they become different loops. Short periods are
#    tried first, and the search is repeated until nothing changes, which finds loops of loops.
# 2. A scope becomes one unit of the scope around it: a loop with one iteration. A scope that
#    contains one unit becomes this unit.
#
# Two loops have the same shape if their iterations do. The numbers of their iterations may differ.
# A tree of units contains each task exactly once, so nothing is lost or merged that differs in
# kernel, source line, or edges inside of an iteration.

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
        rows = graph.log.tasks[["blocks", "file", "line"]].tolist()
        clusters = graph.structure.clusters_of
        tasks = [
            Unit(self._shape((kernel, *row, len(clusters(task)))), task, task + 1)
            for task, (kernel, row) in enumerate(zip(graph.log.kernel_names, rows, strict=True))
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


# ---- folding: several tasks as one node ----

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
    """The drawing of a unit: a node for its tasks in all iterations, or a box for a loop.

    ``number``: the first task. ``loop``: the number of the loop. ``count``: the number of
    iterations of ``body``.
    """

    number: int
    tasks: int = 1
    body: list[_Part] = field(default_factory=list)
    loop: int = -1
    count: str = ""


class _Repeats:
    """The drawing of the units of a graph (:class:`Unit`): one iteration of each loop, in a box.

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
        """Return the drawing of a unit that the loops around it execute several times."""
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
        """Return whether a line connects the two parts."""
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
