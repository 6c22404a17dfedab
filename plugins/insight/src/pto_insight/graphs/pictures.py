"""The graph as pictures: SVG, which any browser shows, and DOT, the language of Graphviz."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import count, pairwise

from pto_insight.graphs.drawing import STYLES, Box, Drawing, Line, Node, drawing
from pto_insight.graphs.logged_graph import LoggedGraph

# ---- positions for the nodes and boxes of a drawing ----
#
# Each box is laid out by itself, innermost first, in layers: an item is one layer below the lowest
# of the items that it waits for. Items are nodes and finished boxes. An edge between two items of a
# box may start and end deeper inside them. An edge over several layers has a place in each layer
# that it crosses, so it passes beside the items there. Submits are ordered, so an edge that leads
# back, which only boxes of clusters cause, is ignored when layers are assigned. The items of a
# layer are sorted by the middle of their neighbours in a few sweeps.

NODE_HEIGHT = 36
_MEMBER_WIDTH = 58
_MEMBER_HEIGHT = 18
_MEMBER_GAP = 6
_MEMBERS_IN_ROW = 8
_CHARACTER = 6.7
_SMALL_CHARACTER = 5.2
_GAP_X = 22
_GAP_Y = 40
_PADDING = 14
_TITLE = 18
_SWEEPS = 6
_WIDEST_LAYER = 2600
_CROSSING = 6
_MOST_CROSSINGS = 24

Ends = tuple[int, int]
"""The numbers of the nodes at the ends of an edge."""


@dataclass
class Rectangle:
    """A placed node or box; ``x`` and ``y``: its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rectangle:
        """Return the rectangle at another position."""
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


@dataclass
class PictureLayout:
    """The rectangles of all nodes by number, and of all boxes, outer boxes first.

    ``crossings``: the places that an edge, named by its nodes, crosses between its ends.
    """

    nodes: dict[int, Rectangle]
    boxes: list[tuple[Box, Rectangle]]
    crossings: dict[Ends, list[Rectangle]]
    width: float
    height: float


def member_rectangles(node: Rectangle, members: int) -> list[Rectangle]:
    """Return the rectangles of a group's members inside the rectangle of its node."""
    columns = min(members, _MEMBERS_IN_ROW)
    left = node.x + (node.width - columns * (_MEMBER_WIDTH + _MEMBER_GAP) + _MEMBER_GAP) / 2
    return [
        Rectangle(
            left + column * (_MEMBER_WIDTH + _MEMBER_GAP),
            node.y + NODE_HEIGHT + row * (_MEMBER_HEIGHT + _MEMBER_GAP),
            _MEMBER_WIDTH,
            _MEMBER_HEIGHT,
        )
        for row, column in (divmod(member, columns) for member in range(members))
    ]


def layout(drawing: Drawing) -> PictureLayout:
    """Place everything in a drawing."""
    placed = _Placed(drawing).place(drawing.box)
    return PictureLayout(
        placed.nodes, placed.boxes[1:], placed.crossings, placed.width, placed.height
    )


@dataclass
class _Item:
    """A node, a box that is laid out, or the place of an edge that crosses a layer.

    ``first``: the smallest number of its nodes.
    """

    first: int
    width: float
    height: float
    nodes: dict[int, Rectangle] = field(default_factory=dict)
    boxes: list[tuple[Box, Rectangle]] = field(default_factory=list)
    crossings: dict[Ends, list[Rectangle]] = field(default_factory=lambda: defaultdict(list))

    def add(self, item: _Item, x: float, y: float) -> None:
        """Add the nodes, boxes and crossings of an item, moved by ``x`` and ``y``."""
        for number, rectangle in item.nodes.items():
            self.nodes[number] = rectangle.moved(x, y)
        self.boxes += [(box, at.moved(x, y)) for box, at in item.boxes]
        for ends, places in item.crossings.items():
            self.crossings[ends] += [place.moved(x, y) for place in places]


class _Placed:
    def __init__(self, drawing: Drawing) -> None:
        self._edges = [(line.first, line.second) for line in drawing.lines]

    def place(self, box: Box) -> _Item:
        items = [_node_item(node) for node in box.nodes]
        items += [self.place(inner) for inner in box.boxes if inner.nodes or inner.boxes]
        items.sort(key=lambda item: item.first)
        edges = self._edges_between(items)
        layers = _layers(items, list(edges))
        layers = _sorted(layers, _add_crossings(items, layers, edges))
        widths = [
            sum(items[item].width for item in layer) + _GAP_X * (len(layer) - 1) for layer in layers
        ]
        title = _TITLE if box.title else 0
        width = max([*widths, len(box.title) * _SMALL_CHARACTER], default=0) + 2 * _PADDING
        y = float(_PADDING + title)
        result = _Item(min((item.first for item in items), default=0), width, 0)
        frame = Rectangle(0, 0, width, 0)
        result.boxes.append((box, frame))
        for layer, layer_width in zip(layers, widths, strict=True):
            x = (width - layer_width) / 2
            height = max(items[item].height for item in layer)
            for index in layer:
                item = items[index]
                if not item.nodes:
                    for (crossing,) in item.crossings.values():
                        crossing.height = height
                result.add(item, x, y)
                x += item.width + _GAP_X
            y += height + _GAP_Y
        result.height = frame.height = y - _GAP_Y + _PADDING if layers else y
        return result

    def _edges_between(self, items: list[_Item]) -> dict[Ends, list[Ends]]:
        """Return the pairs of items between which edges lead, each with its edges."""
        item_of = {number: index for index, item in enumerate(items) for number in item.nodes}
        found: dict[Ends, list[Ends]] = defaultdict(list)
        for first, second in self._edges:
            pair = item_of.get(first, -1), item_of.get(second, -1)
            if pair[0] != pair[1] and min(pair) >= 0:
                found[pair].append((first, second))
        return dict(sorted(found.items()))


def _add_crossings(
    items: list[_Item], layers: list[list[int]], edges: dict[Ends, list[Ends]]
) -> list[Ends]:
    """Give edges places in the layers that they cross; return all pairs of neighbours.

    A layer with many places gets no further places.
    """
    depth = {item: number for number, layer in enumerate(layers) for item in layer}
    widest = {number: len(layer) + _MOST_CROSSINGS for number, layer in enumerate(layers)}
    pairs = []
    for (first, second), lines in edges.items():
        crossed = range(depth[first] + 1, depth[second])
        if any(len(layers[number]) == widest[number] for number in crossed):
            crossed = range(0)
        before = first
        for number in crossed:
            place = {ends: [Rectangle(_CROSSING / 2, 0, 0, 0)] for ends in lines}
            layers[number].append(len(items))
            pairs.append((before, len(items)))
            before = len(items)
            items.append(_Item(0, _CROSSING, 0, crossings=place))
        pairs.append((before, second))
    return pairs


def _node_item(node: Node) -> _Item:
    width = max(len(node.title) * _CHARACTER, len(node.detail) * _SMALL_CHARACTER) + 18
    columns, rows = min(node.members, _MEMBERS_IN_ROW), -(-node.members // _MEMBERS_IN_ROW)
    members_width = columns * (_MEMBER_WIDTH + _MEMBER_GAP) + _MEMBER_GAP
    height = NODE_HEIGHT + rows * (_MEMBER_HEIGHT + _MEMBER_GAP)
    rectangle = Rectangle(0, 0, max(width, 56, members_width), height)
    return _Item(node.number, rectangle.width, height, {node.number: rectangle})


def _layers(items: list[_Item], edges: list[Ends]) -> list[list[int]]:
    """Return the items of each layer. A layer that is too wide continues in the next layer."""
    into = defaultdict(list)
    for first, second in edges:
        if first < second:
            into[second].append(first)
    depth: list[int] = []
    widths: dict[int, float] = defaultdict(float)
    for index, item in enumerate(items):
        here = max((depth[first] + 1 for first in into[index]), default=0)
        while widths[here] and widths[here] + item.width > _WIDEST_LAYER:
            here += 1
        widths[here] += item.width + _GAP_X
        depth.append(here)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for index, here in enumerate(depth):
        layers[here].append(index)
    return layers


def _sorted(layers: list[list[int]], edges: list[tuple[int, int]]) -> list[list[int]]:
    """Sort each layer by the middle of the neighbours in the layers above or below."""
    neighbours = defaultdict(list)
    for first, second in edges:
        neighbours[first].append(second)
        neighbours[second].append(first)
    depth = {item: number for number, layer in enumerate(layers) for item in layer}
    place = {item: _middle(index, layer) for layer in layers for index, item in enumerate(layer)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = {}
            for item in layer:
                near = [n for n in neighbours[item] if (depth[n] < depth[item]) == down]
                near = [n for n in near if depth[n] != depth[item]]
                wanted[item] = sum(place[n] for n in near) / len(near) if near else place[item]
            layer.sort(key=lambda item: (wanted[item], item))
            for index, item in enumerate(layer):
                place[item] = _middle(index, layer)
    return layers


def _middle(index: int, layer: list[int]) -> float:
    return index - (len(layer) - 1) / 2


# ---- SVG ----

_FONT = "font-family='ui-sans-serif, system-ui, sans-serif'"
_BOXES = {
    "scope": ("#f6f8fa", "#afb8c1", "6 3"),
    "cluster": ("#dafbe1", "#4ac26b", ""),
    "loop": ("#ddf4ff", "#54aeff", ""),
}
_GROUP = "#fff8c5"


def svg(graph: LoggedGraph, fold: str | None) -> str:
    """Return the text of an SVG file."""
    picture = drawing(graph, fold)
    placed = layout(picture)
    used = [name for name in STYLES if any(line.style == name for line in picture.lines)]
    width = max(placed.width, 300)
    legend_height = 18 * (len(used) + bool(picture.note)) + 14
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} "
        f"{placed.height + legend_height:.0f}' width='{width:.0f}' "
        f"height='{placed.height + legend_height:.0f}' {_FONT}>",
        f"<title>{len(graph)} tasks, {len(graph.edge_rows)} edges</title>",
        "<defs>",
        *(_arrow_head(name) for name in used),
        "</defs>",
        "<rect width='100%' height='100%' fill='#ffffff'/>",
        *(_box(box, at) for box, at in placed.boxes),
        *(_line(line, placed) for line in picture.lines),
        *(_node(node, placed.nodes[node.number]) for node in picture.nodes),
        *_legend(used, picture.note, placed.height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrow_head(name: str) -> str:
    return (
        f"<marker id='head-{name}' viewBox='0 0 8 8' refX='7.5' refY='4' markerWidth='7' "
        f"markerHeight='7' orient='auto'><path d='M0 0.5 8 4 0 7.5z' "
        f"fill='{STYLES[name].colour}'/></marker>"
    )


def _box(box: Box, at: Rectangle) -> str:
    fill, stroke, dash = _BOXES[box.kind]
    return (
        f"<rect x='{at.x:.1f}' y='{at.y:.1f}' width='{at.width:.1f}' height='{at.height:.1f}' "
        f"rx='6' fill='{fill}' fill-opacity='0.6' stroke='{stroke}' stroke-dasharray='{dash}'/>"
        f"<text x='{at.x + 8:.1f}' y='{at.y + 15:.1f}' font-size='10' fill='#57606a'>"
        f"{escape(box.title)}</text>"
    )


def _node(node: Node, at: Rectangle) -> str:
    frame = f"width='{at.width:.1f}' height='{at.height:.1f}' rx='5' stroke='#57606a'"
    behind = (
        f"<rect x='{at.x + 3:.1f}' y='{at.y + 3:.1f}' {frame} fill='#eaeef2'/>"
        if node.is_several
        else ""
    )
    middle = at.x + at.width / 2
    title_y = at.y + (15 if node.detail else 22)
    detail = (
        f"<text x='{middle:.1f}' y='{at.y + 29:.1f}' font-size='9' fill='#57606a' "
        f"text-anchor='middle'>{escape(node.detail)}</text>"
        if node.detail
        else ""
    )
    fill = _GROUP if node.members else node.colour or "#ffffff"
    members = "".join(map(_member, count(), member_rectangles(at, node.members)))
    return (
        f"<g class='task'><title>{escape(node.tip)}</title>{behind}"
        f"<rect x='{at.x:.1f}' y='{at.y:.1f}' {frame} fill='{fill}'/>"
        f"<text x='{middle:.1f}' y='{title_y:.1f}' font-size='12' fill='#24292f' "
        f"text-anchor='middle'>{escape(node.title)}</text>{detail}{members}</g>"
    )


def _member(number: int, at: Rectangle) -> str:
    return (
        f"<g class='member'><rect x='{at.x:.1f}' y='{at.y:.1f}' width='{at.width:.1f}' "
        f"height='{at.height:.1f}' rx='4' stroke='#57606a' fill='#ffffff'/>"
        f"<text x='{at.x + at.width / 2:.1f}' y='{at.y + 12:.1f}' font-size='9' fill='#24292f' "
        f"text-anchor='middle'>member {number}</text></g>"
    )


def _line(line: Line, placed: PictureLayout) -> str:
    style, ends = STYLES[line.style], (line.first, line.second)
    first, second = placed.nodes[line.first], placed.nodes[line.second]
    path = f"M{first.x + first.width / 2:.1f} {first.y + first.height:.1f}"
    for above, below in pairwise([first, *placed.crossings.get(ends, ()), second]):
        path += _segment(above, below)
    return (
        f"<g class='edge'><title>{escape(line.tip)}</title><path d='{path}' fill='none' "
        f"stroke='{style.colour}' stroke-dasharray='{style.dash}' stroke-width='1.3' "
        f"marker-end='url(#head-{line.style})'/></g>"
    )


def _segment(above: Rectangle, below: Rectangle) -> str:
    """Return the path from below one rectangle to the upper edge of another, and through it.

    The path goes through a crossing, which has no width, and ends at a node.
    """
    x1, x2 = above.x + above.width / 2, below.x + below.width / 2
    y1, y2 = above.y + above.height, below.y
    bend = max(18.0, min(60.0, abs(y2 - y1) / 2))
    through = "" if below.width else f"V{y2 + below.height:.1f}"
    return f"C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}{through}"


def _legend(used: list[str], note: str, top: float) -> Iterator[str]:
    for number, name in enumerate(used):
        y = top + 10 + 18 * number
        style = STYLES[name]
        yield (
            f"<path d='M14 {y:.1f}H54' stroke='{style.colour}' stroke-dasharray='{style.dash}' "
            f"stroke-width='1.3' marker-end='url(#head-{name})'/><text x='62' y='{y + 3.5:.1f}' "
            f"font-size='10' fill='#57606a'>{escape(style.meaning)}</text>"
        )
    if note:
        y = top + 13.5 + 18 * len(used)
        yield f"<text x='14' y='{y:.1f}' font-size='10' fill='#57606a'>{escape(note)}</text>"


# ---- DOT ----


def dot(graph: LoggedGraph, fold: str | None) -> str:
    """Return the text of a DOT file."""
    picture = drawing(graph, fold)
    groups = {node.number for node in picture.nodes if node.members}
    lines = ["digraph pto {", "  compound=true;", '  node [shape=box, fontname="sans-serif"];']
    if picture.note:
        lines.append(f"  label={_quoted(picture.note)};")
    lines += _box_text(picture.box, "  ", iter(range(len(graph) * 2 + 1)))
    for line in picture.lines:
        style = STYLES[line.style]
        dash = ', style="dashed"' if style.dash else ""
        first, tail = _end(line.first, "ltail", groups)
        second, head = _end(line.second, "lhead", groups)
        lines.append(
            f"  {first} -> {second} "
            f'[color="{style.colour}", tooltip={_quoted(line.tip)}{dash}{tail}{head}];'
        )
    return "\n".join([*lines, "}", ""])


def _box_text(box: Box, indent: str, numbers: Iterator[int]) -> Iterator[str]:
    for node in box.nodes:
        yield from _group(node, indent) if node.members else [indent + _node_text(node)]
    for inner in box.boxes:
        yield f"{indent}subgraph cluster_{next(numbers)} {{"
        yield f"{indent}  label={_quoted(inner.title)};"
        yield from _box_text(inner, indent + "  ", numbers)
        yield f"{indent}}}"


def _group(node: Node, indent: str) -> Iterator[str]:
    """Return a group as a box around its members."""
    yield f"{indent}subgraph cluster_t{node.number} {{"
    yield f"{indent}  label={_label(node)}; tooltip={_quoted(node.tip)};"
    for member in range(node.members):
        yield f'{indent}  t{node.number}_{member} [label="member {member}"];'
    yield f"{indent}}}"


def _end(number: int, attribute: str, groups: Collection[int]) -> tuple[str, str]:
    """Return the node at which an edge ends, and the attribute that ends it at the box around."""
    if number not in groups:
        return f"t{number}", ""
    return f"t{number}_0", f', {attribute}="cluster_t{number}"'


def _node_text(node: Node) -> str:
    label = _label(node)
    several = ", peripheries=2" if node.is_several else ""
    fill = f', style="filled", fillcolor="{node.colour}"' if node.colour else ""
    return f"t{node.number} [label={label}, tooltip={_quoted(node.tip)}{several}{fill}];"


def _label(node: Node) -> str:
    return _quoted("\n".join(filter(None, (node.title, node.detail))))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
