"""The graph in the language of Graphviz."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from pto_insight.graphs.drawing import STYLES, Box, Node
from pto_insight.graphs.folding import drawing

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph


def dot(graph: LoggedGraph, fold: str | None) -> str:
    """Return the text of a DOT file."""
    picture = drawing(graph, fold)
    groups = {node.number for node in picture.nodes if node.members}
    lines = ["digraph pto {", "  compound=true;", '  node [shape=box, fontname="sans-serif"];']
    if picture.note:
        lines.append(f"  label={_quoted(picture.note)};")
    lines += _box(picture.box, "  ", iter(range(len(graph) * 2 + 1)))
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


def _box(box: Box, indent: str, numbers: Iterator[int]) -> Iterator[str]:
    for node in box.nodes:
        yield from _group(node, indent) if node.members else [indent + _node(node)]
    for inner in box.boxes:
        yield f"{indent}subgraph cluster_{next(numbers)} {{"
        yield f"{indent}  label={_quoted(inner.title)};"
        yield from _box(inner, indent + "  ", numbers)
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


def _node(node: Node) -> str:
    label = _label(node)
    several = ", peripheries=2" if node.is_several else ""
    fill = f', style="filled", fillcolor="{node.colour}"' if node.colour else ""
    return f"t{node.number} [label={label}, tooltip={_quoted(node.tip)}{several}{fill}];"


def _label(node: Node) -> str:
    return _quoted("\n".join(filter(None, (node.title, node.detail))))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
