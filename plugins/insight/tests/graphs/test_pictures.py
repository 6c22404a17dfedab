"""Pictures of graphs are well-formed and complete; a large graph is folded."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from log_oracle import INOUT, INPUT, OUTPUT, Program, View, log_of, random_program

from pto_core.errors import UsageError
from pto_insight.graphs import TaskGraph
from pto_insight.graphs.drawing import STYLES, drawing, kernel_colours, units
from pto_insight.graphs.log import EVENT
from pto_insight.graphs.pictures import layout, member_rectangles

SCOPE_BEGIN, SCOPE_END = 1, 2
WHOLE = View((64,), (0,), (64,))
LEFT = View((8, 8), (0, 0), (8, 4))
EXPLICIT = ((0, 2), (1, 2))


def with_scopes(log, scopes):
    """Return the log with scopes at (first task, end)."""
    rows = [(first, SCOPE_BEGIN) for first, _ in scopes] + [(end, SCOPE_END) for _, end in scopes]
    events = np.zeros(len(rows), EVENT)
    for event, (tasks, kind) in zip(events, sorted(rows, key=lambda r: (r[0], -r[1])), strict=True):
        event["tasks"], event["kind"] = tasks, kind
    merged = np.concatenate([log.events, events])
    merged = merged[np.argsort(merged["tasks"], kind="stable")]
    return type(log)(log.tasks, log.accesses, merged, log.files, log.kernels)


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
    assert {text for text in texts(svg) if text.startswith("scope")} == {"scope 0", "scope 1"}


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
    boxes = {box.title: at for box, at in placed.boxes}
    for scope in made.structure.scopes:
        for task, at in nodes.items():
            is_inside = overlap(boxes[f"scope {scope.index}"], at)
            assert is_inside == (scope.first <= task < scope.end)


def test_edges_pass_beside_the_nodes_between_their_ends():
    made = graph(40, ())
    placed = layout(drawing(made, None))
    nodes = placed.nodes.values()
    crossed = [place for places in placed.crossings.values() for place in places]
    assert crossed, "no edge is long"
    for place in crossed:
        layer = [at for at in nodes if at.y <= place.y < at.y + at.height]
        assert layer, place
        assert not [at for at in layer if at.x <= place.x <= at.x + at.width]
    paths = [element.get("d") for element in ElementTree.fromstring(made.to_svg(None)).iter()]
    assert sum(path.count("V") for path in paths if path and path.startswith("M")) == len(crossed)


# Its edges have the reasons that the tests below state.
REASONS = TaskGraph(
    log_of(
        Program(
            (
                ((OUTPUT, WHOLE),),
                ((INPUT, LEFT),),
                ((INOUT, View((8, 8), (0, 4), (8, 4))),),
                ((OUTPUT, View((64,), (4,), (4,))),),
                (),
                ((INPUT, View((64,), (2,), (8,))),),
            ),
            ((1, 4),),
            True,
        )
    )
)


def edges_of(svg):
    """Return the style, the arrow head and the tip of each edge of a picture, by its ends."""
    root = ElementTree.fromstring(svg)
    names = {style.colour: name for name, style in STYLES.items()}
    heads = {element.get("id") for element in root.iter() if element.get("id")}
    found = {}
    for group in root.iter():
        if group.get("class") == "edge":
            tip, path = group
            name = names[path.get("stroke")]
            assert path.get("marker-end") == f"url(#head-{name})"
            assert f"head-{name}" in heads
            ends, *reasons = tip.text.split("\n")
            found[ends] = (name, reasons)
    return found


def test_the_style_and_the_tip_of_an_edge_state_its_reason():
    edges = edges_of(REASONS.to_svg(None))
    assert {ends: style for ends, (style, _) in edges.items()} == {
        "k#0 → k#1": "data",
        "k#0 → k#2": "data",
        "k#0 → k#3": "redundant",
        "k#0 → k#5": "redundant",
        "k#1 → k#3": "disjoint",
        "k#1 → k#4": "explicit",
        "k#2 → k#3": "conservative",
        "k#2 → k#5": "redundant",
        "k#3 → k#5": "data",
    }
    assert edges["k#0 → k#3"][1] == [
        "overwrites memory 0[4:8] [OUTPUT], written before as memory 0 [OUTPUT]"
    ]
    assert edges["k#1 → k#3"][1] == [
        "overwrites memory 0[4:8] [OUTPUT], read before as memory 0[0:8, 0:4] [INPUT] "
        "(by byte hull; no byte is shared)"
    ]


def test_dot_states_the_reasons_too():
    dot = REASONS.to_dot(None)
    assert (
        f't1 -> t4 [color="{STYLES["explicit"].colour}", tooltip="k#1 → k#4\\nexplicit edge"' in dot
    )


def test_the_tip_of_a_node_names_its_task_and_core():
    made = TaskGraph(log_of(random_program(5, 2, True)))
    task = made.task(1)
    tip = "\\n".join(filter(None, (task.label, task.name, task.core)))
    assert re.search(rf't1 \[label="k#1[^"]*", tooltip="{re.escape(tip)}', made.to_dot(None))


def test_json_states_what_an_edge_is():
    made = REASONS.to_json()
    flags = ("is_redundant", "is_conservative", "is_disjoint")
    found = {(e["first"], e["second"]): [f for f in flags if e[f]] for e in made["edges"]}
    assert found == {
        (0, 1): [],
        (0, 2): [],
        (0, 3): ["is_redundant"],
        (0, 5): ["is_redundant"],
        (1, 3): ["is_conservative", "is_disjoint"],
        (1, 4): [],
        (2, 3): ["is_conservative"],
        (2, 5): ["is_redundant", "is_conservative"],
        (3, 5): [],
    }


def test_dot_has_each_task_and_edge():
    made = graph()
    dot = made.to_dot(None)
    assert len(re.findall(r"^ +t\d+ \[label=", dot, re.M)) == 30
    assert len(re.findall(r"^ +t\d+ -> t\d+ ", dot, re.M)) == len(made.edge_rows)
    assert dot.count("subgraph cluster_") == 2


MEMBERS = 11


def with_group(blocks):
    """Return the graph of three tasks in a row; the second has MEMBERS members, or blocks."""
    program = Program((((OUTPUT, WHOLE),), ((INPUT, WHOLE),), ()), ((1, 2),), True)
    log = log_of(program, blocks)
    log.tasks["blocks"][1] = MEMBERS
    return TaskGraph(log)


def test_a_group_is_a_box_around_its_members():
    made = with_group(0)
    svg = made.to_svg()
    assert made._repr_svg_() == svg
    assert [text for text in texts(svg) if text.startswith("member ")] == [
        f"member {number}" for number in range(MEMBERS)
    ]
    assert "11 members" in " ".join(texts(svg))
    box = layout(drawing(made, None)).nodes[1]
    members = member_rectangles(box, MEMBERS)
    for at in members:
        assert box.x < at.x
        assert box.y < at.y
        assert at.x + at.width < box.x + box.width
        assert at.y + at.height < box.y + box.height
    assert len({(at.x, at.y) for at in members}) == MEMBERS
    middle = box.x + box.width / 2
    paths = [element.get("d") or "" for element in ElementTree.fromstring(svg).iter()]
    assert any(path.endswith(f" {middle:.1f} {box.y:.1f}") for path in paths)
    assert any(path.startswith(f"M{middle:.1f} {box.y + box.height:.1f}C") for path in paths)


def test_dot_draws_the_edges_of_a_group_to_its_box():
    dot = with_group(0).to_dot()
    assert 'subgraph cluster_t1 {\n    label="k#1\\n11 members"' in dot
    assert len(re.findall(r"^ +t1_\d+ \[label=\"member \d+\"\];$", dot, re.M)) == MEMBERS
    assert re.search(r't0 -> t1_0 \[.*, lhead="cluster_t1"\];', dot)
    assert re.search(r't1_0 -> t2 \[.*, ltail="cluster_t1"\];', dot)
    assert "compound=true;" in dot


def test_json_has_the_number_of_members_of_a_group():
    def counts(graph):
        return [(task["blocks"], task["members"]) for task in graph.to_json()["tasks"]]

    assert counts(with_group(0)) == [(0, 0), (0, MEMBERS), (0, 0)]
    assert counts(with_group(24)) == [(0, 0), (MEMBERS, 0), (0, 0)]
    assert "member 0" not in texts(with_group(24).to_svg())


def with_kernels(names, explicit=(), scopes=()):
    """Return the graph of tasks that run these kernels, with explicit edges only."""
    log = log_of(Program(((),) * len(names), tuple(explicit), True))
    kernels = list(dict.fromkeys(names))
    log.tasks["func_id"] = [kernels.index(name) for name in names]
    log = with_scopes(log, scopes)
    named = dict(enumerate(kernels))
    return TaskGraph(type(log)(log.tasks, log.accesses, log.events, log.files, named))


def attention(chains, has_scopes):
    """Return the graph of chains of blocks; ``chains``: the number of blocks of each."""
    names, edges, scopes = [], [], []
    for blocks in chains:
        begin = len(names)
        for block in range(blocks):
            first = len(names)
            names += ["QK", "SF", "PV", "UP"]
            edges += [(first, first + 1), (first + 1, first + 2), (first + 2, first + 3)]
            if block:
                edges.append((first - 1, first + 3))
        scopes.append((begin, len(names)))
    return with_kernels(names, sorted(edges, key=lambda edge: edge[1]), scopes * has_scopes)


BODY = "{QK -> SF -> PV -> UP}"


@pytest.mark.parametrize(
    ("chains", "has_scopes", "expected"),
    [
        ([1] * 256, False, [f"256 x {BODY}"]),
        ([1] * 256, True, [f"256 x {BODY}"]),
        ([3] * 64, False, [f"192 x {BODY}, 128 edges between iterations"]),
        (
            [3] * 64,
            True,
            [f"64 x {{3 x {BODY}}}", f"3 x {BODY}, 128 edges between iterations"],
        ),
        (
            [1, 4, 2] * 20,
            True,
            [f"60 x {{1 to 4 x {BODY}}}", f"1 to 4 x {BODY}, 80 edges between iterations"],
        ),
    ],
)
def test_one_iteration_of_each_loop_is_drawn(chains, has_scopes, expected):
    made = attention(chains, has_scopes)
    svg = made.to_svg()
    assert [text for text in texts(svg) if " x " in text] == expected
    for kernel in ("QK", "SF", "PV", "UP"):
        assert texts(svg).count(kernel) == 1
    assert f"folded: {len(made)} tasks in 4 nodes; --fold none draws each task" in texts(svg)
    lines = drawing(made, "repeat").lines
    assert [line.tip for line in lines] == [f"{len(made) // 4} edges: explicit edge"] * 3
    assert f'label="{expected[0]}"' in made.to_dot()


def test_iterations_with_other_edges_or_kernels_are_other_loops():
    names = ["A", "B"] * 10 + ["C"] + ["A", "B"] * 10
    edges = [(at, at + 1) for at in range(0, 10, 2)]
    shown = texts(with_kernels(names, edges).to_svg("repeat"))
    assert [text for text in shown if " x " in text] == [
        "5 x {A -> B}",
        "5 x {A, B}",
        "10 x {A, B}",
    ]


def test_a_loop_of_one_task_is_a_node():
    edges = [(task, task + 1) for task in range(149)]
    shown = texts(with_kernels(["A"] * 150 + ["B"], edges).to_svg())
    assert "150 x A" in shown
    assert "149 edges between iterations, 150 tasks" in shown
    assert "B#150" in shown


@pytest.mark.parametrize("seed", range(20))
def test_folding_loses_no_task_and_no_edge(seed):
    numbers = random.Random(seed)
    body = [numbers.choice("ABC") for _ in range(numbers.randrange(1, 9))]
    names = [name for _ in range(40) for name in [*body, numbers.choice("AB")]]
    edges = [(numbers.randrange(second), second) for second in range(1, len(names))]
    cuts = sorted(numbers.sample(range(len(names)), 6))
    made = with_kernels(names, edges, list(zip(cuts[::2], cuts[1::2], strict=True)))

    def tasks_of(unit):
        inner = [task for each in unit.iterations for one in each for task in tasks_of(one)]
        assert not unit.iterations or (inner[0], inner[-1] + 1) == (unit.first, unit.end)
        return inner or [unit.first]

    assert [task for unit in units(made) for task in tasks_of(unit)] == list(range(len(names)))
    picture = drawing(made, "repeat")
    drawn = sum(int(re.match(r"\d+", line.tip)[0]) for line in picture.lines)
    shown = " ".join(texts(made.to_svg("repeat")))
    between = sum(map(int, re.findall(r"(\d+) edges between", shown)))
    assert drawn + between == len(made.edge_rows)
    nodes = {node.number for node in picture.nodes}
    assert {end for line in picture.lines for end in (line.first, line.second)} <= nodes


def test_a_node_has_the_colour_of_its_kernel():
    made = with_kernels(["A", "B", "A"])
    colours = kernel_colours(made)
    assert colours["A"] != colours["B"]
    fills = re.findall(r"rx='5' stroke='#57606a' fill='([^']*)'", made.to_svg())
    assert fills == [colours["A"], colours["B"], colours["A"]]
    assert made.to_dot().count(f'fillcolor="{colours["A"]}"') == 2


def test_a_large_graph_without_loops_is_folded_by_scope_or_kernel():
    names = [f"k{n % 290}" for n in range(300)]
    folded = with_kernels(names, (), ((0, 100), (100, 290))).to_svg()
    assert "scope 1" in texts(folded)
    assert "k5#295" in texts(folded)
    assert "k5#5" not in texts(folded)
    names = [f"k{n * n % 401 % 7}" for n in range(3000)]
    numbers = random.Random(1)
    edges = [(numbers.randrange(second), second) for second in range(1, len(names))]
    assert f"{names.count('k3')} tasks" in texts(with_kernels(names, edges).to_svg())


def test_a_folded_edge_has_the_style_of_most_of_its_edges():
    log = log_of(Program(((), (), (), ((OUTPUT, WHOLE),), ((INPUT, LEFT),)), EXPLICIT, True))
    made = TaskGraph(with_scopes(log, ((0, 2), (2, 5))))
    assert edges_of(made.to_svg("scope")) == {"2 edges: explicit edge": ("explicit", [])}


def test_unknown_ways_to_fold_and_formats_are_refused(tmp_path):
    with pytest.raises(UsageError, match="fold is 'colour'"):
        graph().to_svg("colour")
    with pytest.raises(UsageError, match="the file name must end in"):
        graph().save(tmp_path / "graph.png")
    graph().save(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
