"""The graph in the language of Graphviz."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pto_core.graphs.drawing import STYLES, Box, Node, drawing

if TYPE_CHECKING:
    from pto_core.graphs.logged_graph import LoggedGraph


def dot(graph: LoggedGraph, fold: str | None) -> str:
    """Return the text of a DOT file."""
    picture = drawing(graph, fold)
    lines = ["digraph pto {", '  node [shape=box, fontname="sans-serif"];']
    lines += _box(picture.box, "  ", iter(range(len(graph) * 2 + 1)))
    for line in picture.lines:
        style = STYLES[line.style]
        dash = ', style="dashed"' if style.dash else ""
        lines.append(
            f"  t{line.first} -> t{line.second} "
            f'[color="{style.colour}", tooltip={_quoted(line.tip)}{dash}];'
        )
    return "\n".join([*lines, "}", ""])


def _box(box: Box, indent: str, numbers: Iterator[int]) -> Iterator[str]:
    for node in box.nodes:
        yield indent + _node(node)
    for inner in box.boxes:
        yield f"{indent}subgraph cluster_{next(numbers)} {{"
        yield f"{indent}  label={_quoted(inner.title)};"
        yield from _box(inner, indent + "  ", numbers)
        yield f"{indent}}}"


def _node(node: Node) -> str:
    label = _quoted("\n".join(filter(None, (node.title, node.detail))))
    several = ", peripheries=2" if node.is_several else ""
    return f"t{node.number} [label={label}, tooltip={_quoted(node.tip)}{several}];"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
