"""What a picture shows: nodes, boxes around them, and edges; the same for DOT and SVG."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pto_core.errors import UsageError
from pto_insight.graphs.reasons import Why

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph, Task

FOLD_ABOVE = 200
MOST_LINES = 500
FOLDS = ("auto", "scope", "kernel")


class Style(NamedTuple):
    """How an edge is drawn. ``dash``: lengths of dashes and gaps; empty for a solid line."""

    colour: str
    dash: str
    meaning: str


STYLES = {
    "data": Style("#24292f", "", "reads what the other wrote"),
    "order": Style("#8250df", "", "overwrites what the other wrote or read"),
    "explicit": Style("#0969da", "", "explicit edge"),
    "cluster": Style("#1a7f37", "", "allocates the cluster that the other freed"),
    "conservative": Style("#bc4c00", "5 3", "by byte hull only"),
    "disjoint": Style("#cf222e", "2 3", "no byte is shared"),
    "redundant": Style("#b6bcc4", "1 3", "implied by other edges"),
}


@dataclass
class Node:
    """A node. ``number``: its place in the order of submits. ``members``: those of a group.

    The edges of a group end at its border, because they order all of its members.
    """

    number: int
    title: str
    detail: str
    tip: str
    is_several: bool
    members: int = 0


@dataclass
class Box:
    """A box with a title around nodes and other boxes. The picture itself is a box, too."""

    title: str
    nodes: list[Node] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    kind: str = "scope"


@dataclass
class Line:
    """An edge between the nodes with these numbers."""

    first: int
    second: int
    style: str
    tip: str


@dataclass
class Drawing:
    """A picture without positions."""

    box: Box
    lines: list[Line]

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, in any order."""
        boxes = [self.box]
        while boxes:
            box = boxes.pop()
            yield from box.nodes
            boxes += box.boxes


def drawing(graph: LoggedGraph, fold: str | None) -> Drawing:
    """Return the picture of a graph; see ``TaskGraph.to_svg``. Raises UsageError."""
    if fold is not None and fold not in FOLDS:
        raise UsageError(
            f"fold is {fold!r}; pass 'auto', 'scope', 'kernel' or None",
            name="fold",
            value=fold,
            expected="auto, scope or kernel",
        )
    if fold is None or (fold == "auto" and len(graph) <= FOLD_ABOVE):
        return _whole(graph)
    if fold == "scope" or (fold == "auto" and graph.structure.scopes):
        folded = _folded(graph, _outermost_scope(graph), "scope")
        if fold == "scope" or len(folded.lines) <= MOST_LINES:
            return folded
    return _folded(graph, lambda task: ("kernel", graph.task(task).kernel), "kernel")


def _whole(graph: LoggedGraph) -> Drawing:
    root = Box("")
    boxes: list[Box] = []
    for scope in graph.structure.scopes:
        box = Box(f"scope {scope.index}{_line_text(scope.file, scope.line)}")
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
        box.nodes.append(_task_node(task))
    lines = []
    for edge, style in zip(graph.edges, _styles(graph), strict=True):
        ends = f"{graph.task(edge.first).label} → {graph.task(edge.second).label}"
        tip = "\n".join([ends, *map(str, edge.reasons)])
        lines.append(Line(edge.first, edge.second, style, tip))
    return Drawing(root, lines)


def _task_node(task: Task) -> Node:
    count = f"{task.blocks} blocks" if task.blocks else ""
    if task.members:
        count = f"{task.members} members"
    detail = " ".join(filter(None, (count, _line_text(task.file, task.line).strip())))
    tip = "\n".join(filter(None, (task.label, task.name, task.core, count, task.where)))
    return Node(task.index, task.label, detail, tip, task.blocks > 1, task.members)


def _styles(graph: LoggedGraph) -> list[str]:
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
        "explicit": np.logical_or.reduceat(why == Why.EXPLICIT, starts),
        "cluster": np.logical_and.reduceat(why == Why.CLUSTER, starts),
    }
    found: list[str] = np.select(list(cases.values()), list(cases), "order").tolist()
    return found


def _folded(graph: LoggedGraph, key_of: Callable[[int], tuple[str, object]], by: str) -> Drawing:
    """Draw the tasks with the same key as one node, and count the edges between two nodes."""
    members: dict[tuple[str, object], list[int]] = {}
    for index in range(len(graph)):
        members.setdefault(key_of(index), []).append(index)
    node_of = {task: tasks[0] for tasks in members.values() for task in tasks}
    root = Box("")
    for (kind, name), tasks in members.items():
        if len(tasks) == 1:
            root.nodes.append(_task_node(graph.task(tasks[0])))
            continue
        kernels = Counter(graph.task(task).kernel for task in tasks)
        parts = ", ".join(f"{count} {kernel}" for kernel, count in kernels.most_common(3))
        more = ", ..." if len(kernels) > 3 else ""
        title = str(name) if by == "kernel" else f"{kind} {name}"
        detail = f"{len(tasks)} tasks" if by == "kernel" else f"{parts}{more}"
        root.nodes.append(Node(tasks[0], title, detail, f"{title}: {parts}{more}", True))
    styles: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for edge, style in zip(graph.edge_rows, _styles(graph), strict=True):
        first, second = node_of[int(edge["first"])], node_of[int(edge["second"])]
        if first != second:
            styles[first, second][style] += 1
    return Drawing(root, [_folded_line(*ends, counts) for ends, counts in styles.items()])


def _folded_line(first: int, second: int, counts: Counter[str]) -> Line:
    """Return one line for several edges, in the style that most of them have."""
    style = counts.most_common(1)[0][0]
    tip = [f"{count} edges: {STYLES[name].meaning}" for name, count in counts.most_common()]
    return Line(first, second, style, "\n".join(tip))


def _outermost_scope(graph: LoggedGraph) -> Callable[[int], tuple[str, object]]:
    scopes = graph.structure.scopes

    def key(task: int) -> tuple[str, object]:
        scope = graph.structure.scope_of(task)
        if scope is None:
            return ("task", task)
        while (parent := scopes[scope].parent) is not None:
            scope = parent
        return ("scope", scope)

    return key


def _line_text(file: str | None, line: int | None) -> str:
    return f"  {file.rpartition('/')[2]}:{line}" if file else ""
