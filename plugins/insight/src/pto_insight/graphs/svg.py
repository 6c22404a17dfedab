"""The graph as a picture that any browser shows."""

from __future__ import annotations

from html import escape
from itertools import count, pairwise
from typing import TYPE_CHECKING

from pto_insight.graphs.drawing import STYLES, Box, Line, Node
from pto_insight.graphs.folding import drawing
from pto_insight.graphs.layout import Layout, Rectangle, layout, member_rectangles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pto_insight.graphs.logged_graph import LoggedGraph

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


def _line(line: Line, placed: Layout) -> str:
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
