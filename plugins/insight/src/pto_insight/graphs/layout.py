"""Positions for the nodes and boxes of a drawing.

Each box is laid out by itself, innermost first, in layers: an item is one layer below the lowest of
the items that it waits for. Items are nodes and finished boxes. An edge between two items of a box
may start and end deeper inside them. An edge over several layers has a place in each layer that it
crosses, so it passes beside the items there. Submits are ordered, so an edge that leads back, which
only boxes of clusters cause, is ignored when layers are assigned. The items of a layer are sorted
by the middle of their neighbours in a few sweeps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from pto_insight.graphs.drawing import Box, Drawing, Node

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
    """A placed node or box; ``x`` and ``y`` are those of its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rectangle:
        """Return the rectangle at another position."""
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


@dataclass
class Layout:
    """The rectangles of all nodes by number, and of all boxes, outer boxes first.

    ``crossings``: the places that an edge, named by its nodes, crosses between its ends.
    """

    nodes: dict[int, Rectangle]
    boxes: list[tuple[Box, Rectangle]]
    crossings: dict[Ends, list[Rectangle]]
    width: float
    height: float


def member_rectangles(node: Rectangle, members: int) -> list[Rectangle]:
    """Return the rectangles of the members of a group inside of that of its node."""
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


def layout(drawing: Drawing) -> Layout:
    """Place everything in a drawing."""
    placed = _Placed(drawing).place(drawing.box)
    return Layout(placed.nodes, placed.boxes[1:], placed.crossings, placed.width, placed.height)


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
        """Take in what an item has, at a position."""
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

    A layer with many places gets no further ones.
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
    """Return the items of each layer; a layer that is too wide continues in the next one."""
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
