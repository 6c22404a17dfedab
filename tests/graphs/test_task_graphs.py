"""The graphs of programs on a device: independent of timing, equal to what the runtime links."""

from __future__ import annotations

import random
import secrets
import threading
from typing import Any

import numpy as np
import pytest
from random_program import graph as orchestration, inputs, random_program

from pto_core import CallConfig, In, InOut, NoDep, Out, OutExisting, kernel, open_device
from pto_core.errors import RaceError
from pto_insight.graphs import TaskGraph, Why
from pto_insight.graphs.drawing import drawing
from pto_insight.graphs.pictures import layout

# Invariant of this file: The graph of a program does not depend on the timing of the run, on the
# sizes of its rings, or on addresses. A program whose conflicting tasks are ordered has no races.

PROGRAMS = 6
PATIENCE_S = 60


@kernel(core="aiv")
def fill(data: Out) -> None:
    data[...] = 1


@kernel(core="aiv")
def add(source: In, target: InOut) -> None:
    target += source


@kernel(core="aiv")
def nothing() -> None:
    pass


def pairs(graph: TaskGraph) -> list[tuple[int, int]]:
    return [(edge.first, edge.second) for edge in graph.edges]


def random_graph(program: Any, hazards: str, **settings: Any) -> TaskGraph:
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        return device.graph(orchestration(program), *inputs(1), hazards=hazards)


@pytest.mark.parametrize("hazards", ["full", "raw"])
def test_a_graph_does_not_depend_on_timing_rings_or_addresses(hazards: str) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(PROGRAMS):
        program = random_program(numbers.getrandbits(32), hazards)
        graphs = [
            random_graph(program, hazards, **{"sim.mode": "threads"}),
            random_graph(
                program,
                hazards,
                **{"sim.mode": "deterministic", "sim.seed": numbers.getrandbits(30)},
            ),
            random_graph(program, hazards, **{"pto2.task_window": "1024", "pto2.heap": "1M"}),
        ]
        first = graphs[0].to_json()
        assert len(first["tasks"]) == len(program.tasks)
        for other in graphs[1:]:
            assert other.to_json() == first
        findings = graphs[0].check()
        assert (findings.races, findings.declared) == ((), ()), str(findings)


def test_the_edges_are_those_that_the_runtime_finds_if_no_task_ends() -> None:
    """A first task that blocks the cores keeps every task alive until all are submitted."""
    may_end = threading.Event()

    @kernel(core="aiv")
    def hold(data: InOut) -> None:
        assert may_end.wait(PATIENCE_S)

    @kernel(core="aiv")
    def touch(source: In, target: InOut) -> None:
        pass

    def graph(rt: Any, data: InOut) -> None:
        rt.submit(hold, data)
        for step in range(40):
            low = step * 7 % 48
            rt.submit(touch, data[low : low + 8], data[(low + 16) % 56 :])
        may_end.set()

    with open_device("a2a3sim", runtime="pto2") as device:
        report = device.run(graph, np.zeros(64, np.float32), accesses=True)
    assert report.accesses is not None
    made = TaskGraph(report.accesses)
    statistics = report.statistics
    kinds = ("read_after_write", "write_after_read", "write_after_write", "explicit")
    linked = sum(statistics[f"edges_{kind}"] for kind in kinds)
    assert len(made.edge_rows) == linked


def test_buffers_of_rings_are_named_by_their_task_not_by_address() -> None:
    def graph(rt: Any, data: InOut) -> None:
        for _ in range(8):
            with rt.scope():
                part = rt.tensor((64,), "float32")
                rt.submit(fill, part)
                rt.submit(add, part[:32], data[:32])

    with open_device("a2a3sim", runtime="pto2", settings={"pto2.heap": "2K"}) as device:
        made = device.graph(graph, np.zeros(64, np.float32))
    texts = {reason.second for edge in made.edges for reason in edge.reasons}
    assert {f"fill#{2 * n}.0[0:32]" for n in range(8)} <= texts
    assert "data[0:32]" in texts
    scope = made.task(3).scope
    assert scope == 1
    assert made.structure.scopes[1].line is not None
    assert made.task(2).where.startswith(__file__)
    reads = [e for e in made.edges if e.second % 2 and e.first == e.second - 1]
    assert len(reads) == 8
    assert all(e.reasons[0].why is Why.READ for e in reads)


def test_explicit_edges_clusters_and_block_tasks_are_in_the_graph() -> None:
    def graph(rt: Any, data: InOut) -> None:
        first = rt.submit(fill, Out(data[:32]))
        rt.submit(nothing, after=first)
        for _ in range(2):
            cluster = rt.allocate_cluster()
            rt.submit(nothing, cluster=cluster)
            rt.submit_block(nothing_in_blocks, block_dim=2, clusters=[cluster, cluster])
            rt.free_cluster(cluster)

    @kernel(core="aiv")
    def nothing_in_blocks(block_dim: int, block_id: int) -> None:
        pass

    with open_device("a2a3sim", runtime="pto2", block_dim=1) as device:
        made = device.graph(graph, np.zeros(64, np.float32))
    reasons = {(edge.first, edge.second): edge.reasons[0].why for edge in made.edges}
    after = Why.CLUSTER
    assert reasons == {(0, 1): Why.EXPLICIT, **{(a, b): after for a in (2, 3) for b in (4, 5)}}
    assert made.task(3).blocks == 2
    clusters = made.structure.clusters
    assert [cluster.tasks for cluster in clusters] == [(2, 3), (4, 5)]
    numbers = [(cluster.number,) for cluster in clusters for _ in cluster.tasks]
    assert [task.clusters for task in made.tasks] == [(), (), *numbers]
    placed = layout(drawing(made, None))
    inside = {
        box.title: [task for task, node in placed.nodes.items() if is_inside(node, at)]
        for box, at in placed.boxes
    }
    assert inside == {f"cluster {cluster.number}": [*cluster.tasks] for cluster in clusters}
    assert all(title in made.to_svg() and title in made.to_dot() for title in inside)


def is_inside(node: Any, box: Any) -> bool:
    return bool(
        box.x <= node.x
        and node.x + node.width <= box.x + box.width
        and box.y <= node.y
        and node.y + node.height <= box.y + box.height
    )


@pytest.mark.parametrize("runtime", ["host_build_graph", "aicpu_build_graph"])
def test_build_graph_variants_have_tasks_and_explicit_edges(runtime: str) -> None:
    def graph(rt: Any) -> None:
        tasks = [rt.add_task(nothing, ()) for _ in range(4)]
        for first, second in ((3, 1), (0, 1), (1, 2)):
            rt.add_successor(tasks[first], tasks[second])
        for task in tasks:
            rt.publish(task)

    with open_device("a2a3sim", runtime=runtime) as device:
        made = device.graph(graph)
    assert sorted(pairs(made)) == [(0, 1), (1, 2), (3, 1)]
    assert made.is_before(3, 2)
    assert not made.is_before(0, 3)


def overwritten(rt: Any, data: InOut, total: InOut) -> None:
    rt.submit(add, In(data), InOut(total))
    rt.submit(fill, Out(data))


def test_a_planted_race_is_found_with_its_lines_and_bytes() -> None:
    arrays = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with open_device("a2a3sim", runtime="pto2") as device:
        assert device.graph(overwritten, *arrays).check().is_clean
        findings = device.graph(overwritten, *arrays, hazards="raw").check()
    (race,) = findings.races
    first = overwritten.__code__.co_firstlineno
    assert (race.first.line, race.second.line) == (first + 1, first + 2)
    assert (race.buffer, race.begin, race.end) == ("data", 0, 256)


def test_hazards_check_raises_for_races() -> None:
    @kernel(core="aiv")
    def set_existing(data: OutExisting) -> None:
        data[...] = 2

    def declared(rt: Any, data: InOut) -> None:
        rt.submit(fill, data)
        rt.submit(set_existing, data)

    array = np.zeros(64, np.float32)
    settings = {"hazards": "raw"}
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        with pytest.raises(RaceError, match="1 pair of tasks races; add#0 and fill#1") as caught:
            device.run(overwritten, array, array.copy(), hazards="check")
        assert caught.value.races == 1
        (note,) = caught.value.__notes__
        lines = [overwritten.__code__.co_firstlineno + offset for offset in (1, 2)]
        assert note.splitlines() == [
            "add#0 and fill#1 share 256 bytes of data (bytes 0:256)",
            f"  add#0: data [INPUT]  {__file__}:{lines[0]}",
            f"  fill#1: data [OUTPUT]  {__file__}:{lines[1]}",
            '  fix: run with hazards="full", or submit fill#1 with after=add#0',
        ]
        device.run(declared, array, hazards="check")
        findings = device.graph(declared, array).check()
    assert findings.is_clean
    assert len(findings.declared) == 1
    assert "OUTPUT or INOUT in set_existing#1" in findings.declared[0].fix


def test_unread_outputs_and_unwritten_inputs_are_found() -> None:
    @kernel(core="aiv")
    def read_other(data: NoDep, other: In) -> None:
        pass

    def graph(rt: Any, data: Out) -> None:
        lost, used = rt.tensor((64,), "float32"), rt.tensor((64,), "float32")
        rt.submit(fill, lost)
        rt.submit(fill, used)
        rt.submit(read_other, used, data)
        rt.submit(add, rt.empty((64,), "float32"), data)

    with open_device("a2a3sim", runtime="pto2") as device:
        findings = device.graph(graph, np.zeros(64, np.float32)).check()
    assert [str(access).split("  ")[0] for access in findings.unread] == [
        "fill#0: fill#0.0 [OUTPUT]"
    ]
    assert [access.place for access in findings.uninitialised_reads] == ["data", "empty 0", "data"]
    assert not findings.is_clean


def test_an_unread_output_is_a_hint() -> None:
    with open_device("a2a3sim", runtime="pto2") as device:
        findings = device.graph(lambda rt: rt.submit(fill, rt.tensor((64,), "float32"))).check()
    assert (len(findings.unread), findings.is_clean) == (1, True)


def test_enable_dep_gen_writes_the_graph_of_each_run(tmp_path: Any) -> None:
    config = CallConfig(enable_dep_gen=1, output_prefix=str(tmp_path / "it"))
    array = np.zeros(64, np.float32)
    with open_device("a2a3sim", runtime="pto2") as device:
        device.run(overwritten, array, array.copy())
        device.run(overwritten, array, array.copy(), config=config)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "it.device0.run2.json",
        "it.device0.run2.svg",
    ]


def test_a_run_without_the_log_keeps_none() -> None:
    array = np.zeros(64, np.float32)
    with open_device("a2a3sim", runtime="pto2") as device:
        device.graph(overwritten, array, array.copy())
        assert device.run(overwritten, array, array.copy()).accesses is None


def test_tasks_of_a_build_graph_have_their_lines() -> None:
    def graph(rt: Any, data: InOut) -> None:
        rt.publish(rt.add_task(fill, (data,)))
        rt.publish(rt.add_task(fill, (data,)))

    with open_device("a2a3sim", runtime="aicpu_build_graph") as device:
        made = device.graph(graph, np.zeros(8, np.float32))
    first = graph.__code__.co_firstlineno
    assert [task.line for task in made.tasks] == [first + 1, first + 2]
    assert {task.where.partition(":")[0] for task in made.tasks} == {__file__}
