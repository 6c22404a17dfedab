"""What a picture shows: nodes, boxes around them, and edges; the same for DOT and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from colorsys import hls_to_rgb
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pto_insight.graphs.reasons import Why

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph, Task


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

    The edges of a group end at its border, because they order all of its members. ``colour``: that
    of its kernel; empty if its tasks run several kernels.
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
    """A picture without positions. ``note``: what is folded, and how to see all tasks."""

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


def task_node(task: Task, colours: Mapping[str, str]) -> Node:
    """Return the node of one task. ``colours``: those of the kernels."""
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
        "explicit": np.logical_or.reduceat(why == Why.EXPLICIT, starts),
        "cluster": np.logical_and.reduceat(why == Why.CLUSTER, starts),
    }
    found: list[str] = np.select(list(cases.values()), list(cases), "order").tolist()
    return found


def source_text(file: str | None, line: int | None) -> str:
    """Return the end of a title that names a source line."""
    return f"  {file.rpartition('/')[2]}:{line}" if file else ""
