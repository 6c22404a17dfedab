"""Pictures of graphs are well-formed and complete; a large graph is folded."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from log_oracle import log_of, random_program

from pto_core.errors import UsageError
from pto_core.graphs import TaskGraph
from pto_core.graphs.drawing import drawing
from pto_core.graphs.layout import layout
from pto_core.graphs.log import EVENT

SCOPE_BEGIN, SCOPE_END = 1, 2


def with_scopes(log, scopes):
    """Return the log with scopes at (first task, end)."""
    rows = [(first, SCOPE_BEGIN) for first, _ in scopes] + [(end, SCOPE_END) for _, end in scopes]
    events = np.zeros(len(rows), EVENT)
    for event, (tasks, kind) in zip(events, sorted(rows, key=lambda r: (r[0], -r[1])), strict=True):
        event["tasks"], event["kind"] = tasks, kind
    return type(log)(log.tasks, log.accesses, events, log.files, log.kernels)


def graph(tasks=30, scopes=((3, 9), (12, 20))):
    return TaskGraph(with_scopes(log_of(random_program(5, tasks, True)), scopes))


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_the_picture_has_each_task_edge_and_scope():
    made = graph()
    svg = made.to_svg(None)
    root = ElementTree.fromstring(svg)
    classes = [element.get("class") for element in root.iter()]
    assert classes.count("task") == 30
    assert classes.count("edge") == len(made.edge_rows)
    assert {f"k#{n}" for n in range(30)} <= set(texts(svg))
    assert [text for text in texts(svg) if text.startswith("scope")] == ["scope 0", "scope 1"]


def test_nothing_overlaps_and_boxes_contain_their_tasks():
    made = graph()
    placed = layout(drawing(made, None))
    nodes = placed.nodes

    def overlap(a, b):
        return (
            a.x < b.x + b.width
            and b.x < a.x + a.width
            and (a.y < b.y + b.height and b.y < a.y + a.height)
        )

    assert len(nodes) == 30
    for first, a in nodes.items():
        assert a.x >= 0
        assert a.x + a.width <= placed.width
        for second, b in nodes.items():
            assert first >= second or not overlap(a, b), (first, second)
    for (_, box), scope in zip(placed.boxes, made.structure.scopes, strict=True):
        for task, at in nodes.items():
            assert overlap(box, at) == (scope.first <= task < scope.end)


def test_dot_has_each_task_and_edge():
    made = graph()
    dot = made.to_dot(None)
    assert len(re.findall(r"^ +t\d+ \[label=", dot, re.M)) == 30
    assert len(re.findall(r"^ +t\d+ -> t\d+ ", dot, re.M)) == len(made.edge_rows)
    assert dot.count("subgraph cluster_") == 2


def test_a_large_graph_is_folded_by_scope_or_kernel():
    folded = graph(300, ((0, 100), (100, 290))).to_svg()
    assert "scope 1" in texts(folded)
    assert "k#295" in texts(folded)
    assert "k#5" not in texts(folded)
    by_kernel = graph(300, ()).to_svg()
    assert "300 tasks" in texts(by_kernel)


def test_unknown_ways_to_fold_and_formats_are_refused(tmp_path):
    with pytest.raises(UsageError, match="fold is 'colour'"):
        graph().to_svg("colour")
    with pytest.raises(UsageError, match="the file name must end in"):
        graph().save(tmp_path / "graph.png")
    graph().save(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
