"""A program, which receives a session, can be run, drawn, checked, captured and traced."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from pto_core import CallConfig, In, InOut, Out, Retries, Session, TaskArgs, attempt, task
from pto_core.errors import RaceError, TaskFailedError, UsageError
from pto_core.plugins import observation


@task
def plus_one(x: In, out: Out) -> None:
    out[:] = x + 1


@task
def add(value: Any, out: InOut) -> None:
    parts = value if isinstance(value, list) else [value]
    out += sum(np.sum(part) for part in parts if part is not None)


@task
def nothing() -> None:
    pass


@task
def square(number: int) -> int:
    return number * number


@task
def many(number: int) -> Any:
    return np.full(100_000, number)


def test_a_program_has_the_graph_of_its_submits_and_no_task_runs(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.shared_array(4), worker.shared_array(4)

    def program(s: Session) -> None:
        with s.scope():
            part = s.empty(4)
            s.submit(plus_one, x, part)
            s.submit(plus_one, part, y)
        s.submit(add, s.submit(square, 3), y)

    graph = worker.graph(program)
    assert [task.label for task in graph.tasks] == [
        "plus_one#0",
        "plus_one#1",
        "square#2",
        "add#3",
    ]
    assert [task.scope for task in graph.tasks] == [0, 0, None, None]
    assert [(edge.first, edge.second) for edge in graph.edges] == [(0, 1), (1, 3), (2, 3)]
    assert all(task.where.startswith(__file__) for task in graph.tasks)
    assert not y.any()
    worker.run(program)
    assert (y == 11).all()


def overwrites(s: Session, x: Any, y: Any) -> None:
    s.submit(plus_one, x, y)
    s.submit(plus_one, y, x)  # overwrites what the first task reads, and waits for it
    s.submit(plus_one, x, y)
    s.submit(plus_one, y[:2], x[:2])
    s.submit(plus_one, y[2:], x[:2])  # races under raw hazards


def test_a_program_is_checked_under_raw_hazards_before_it_runs(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y = worker.shared_array(4), worker.shared_array(4)
    (race,) = worker.check(overwrites, (x, y), hazards="raw").races
    assert (race.first.index, race.second.index) == (3, 4)
    assert worker.check(overwrites, (x, y)).is_clean  # full hazards are the default of a program
    with pytest.raises(RaceError, match="1 pair of tasks races"):
        worker.run(overwrites, (x, y), hazards="check")
    assert not y.any()
    worker.run(overwrites, (x, y))
    assert x.tolist() == [4, 4, 2, 2]


def test_a_replay_of_a_program_replaces_its_arrays_and_keeps_its_values(make: Any) -> None:
    worker = make(num_sub_workers=2)
    first, second, out = (worker.shared_array(4, "int64") for _ in range(3))

    def program(s: Session, total: Any) -> None:
        s.submit(add, s.submit(square, 3), total)
        s.submit(add, s.submit(many, 2), total)
        s.submit(add, [s.submit(square, 1), 1], total)
        s.submit(plus_one, np.arange(4), out)  # a copy of an array of this process

    captured = worker.capture(program, (first,))
    assert captured.task_count == 7
    gc.collect()
    for total in (first, second, first):
        with worker.session() as s:  # would use the memory of values that were freed
            assert [s.submit(square, 5).result() for _ in range(20)] == [25] * 20
        total[:] = out[:] = 0
        worker.replay(captured, (total,))
        assert total.tolist() == [9 + 200_000 + 2] * 4
        assert out.tolist() == [1, 2, 3, 4]
    del captured, s, total
    gc.collect()
    assert worker.statistics()["value_bytes"] == 0


def test_a_replay_has_functions_that_the_program_has_dropped(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(1, "int64")

    def captured(factor: int, first: Any = None) -> Any:
        @task
        def scale(out: InOut) -> None:
            out *= factor

        if first == "submitted":  # before the capture, which needs it longer than this submit
            with worker.session() as s:
                s.submit(scale, x)
        return worker.capture(lambda s, out: s.submit(scale, out), (x,))

    graphs = [captured(2), captured(3, "submitted")]
    gc.collect()
    with worker.session() as s:  # releases what nothing needs
        s.submit(plus_one, x, worker.shared_array(1, "int64")).result()
    x[:] = 5
    for graph in (*graphs, *graphs):
        worker.replay(graph, (x,))
    assert x[0] == 5 * 2 * 3 * 2 * 3


def test_a_captured_task_runs_again_after_any_failure_only(make: Any, tmp_path: Path) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(1, "int64")

    @task
    def fails_once(marker: str, out: InOut) -> None:
        if not Path(marker).exists():
            Path(marker).touch()
            raise OSError("the first attempt")
        out += attempt()

    def program(s: Session, out: Any, retries: Any) -> None:
        s.submit(fails_once, str(tmp_path / "marker"), out, retries=retries)

    graph = worker.capture(lambda s, out: program(s, out, 1), (x,))
    worker.replay(graph, (x,))
    worker.replay(graph, (x,))
    assert x[0] == 2
    with pytest.raises(UsageError, match=r"submit it with retries=3"):
        worker.capture(lambda s, out: program(s, out, Retries(3, on=OSError)), (x,))
    assert worker.check(lambda s, out: program(s, out, Retries(3, on=OSError)), (x,)).is_clean


def test_a_graph_does_not_keep_the_functions_of_its_tasks(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(1, "int64")
    kept: list[Any] = []

    def program(s: Session) -> None:
        for factor in (2, 3):

            @task
            def scale(out: InOut, factor: int = factor) -> None:
                out *= factor

            s.submit(scale, x)
            kept.append(ref(scale))
            del scale

    assert [one.kernel.split(".")[-1] for one in worker.graph(program).tasks] == ["scale"] * 2
    worker.run(program)
    gc.collect()
    worker.run(lambda s: s.submit(nothing))  # releases what nothing needs
    gc.collect()
    assert [one() for one in kept] == [None] * 4


def test_a_handle_of_a_captured_task_has_no_result(make: Any) -> None:
    worker = make(num_sub_workers=1)
    remedy = "was only recorded.* pass the handle itself to .* or call Worker.run without hazards="
    for call in (worker.graph, worker.check, worker.capture):
        with pytest.raises(UsageError, match=remedy):
            call(lambda s: s.submit(square, 2).result())
    found: list[Any] = []
    with pytest.raises(UsageError, match=remedy):
        worker.run(lambda s: s.submit(square, 2).result(), hazards="check")
    worker.run(lambda s: found.append(s.submit(square, 2).result()))
    assert found == [4]
    worker.graph(lambda s: found.append(s.submit(square, 2)))
    assert "captured" in found[1]._repr_html_()
    with pytest.raises(TaskFailedError, match="belongs to a captured graph and has not run"):
        worker.run(lambda s: s.submit(square, found[1]))


def test_the_session_of_a_program_ends_with_it(make: Any) -> None:
    worker = make(num_sub_workers=1)
    kept: list[Session] = []
    shown: list[str] = []
    worker.graph(lambda s: (kept.append(s), shown.append(s._repr_html_())))
    assert ">open</td>" in shown[0]
    assert ">not open</td>" in kept[0]._repr_html_()
    with pytest.raises(UsageError, match="inside its block only"):
        kept[0].submit(square, 2)
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda s: 1 / 0)
    assert worker.map(abs, [-1]) == [1]


class Counter:
    """Has methods that a Worker runs; ``self`` is not one of their parameters."""

    def __init__(self, received: list[Any]) -> None:
        self.received = received

    def program(self, s: Session, count: int = 10) -> None:
        self.received.append(count)

    def graph(self, orch: Any, args: Any, config: Any) -> None:
        self.received.append(type(config))


def test_the_parameters_tell_a_program_from_a_graph_function(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)
    received: list[Any] = []
    worker.run(lambda *all_of_them: received.append(len(all_of_them)))
    worker.run(lambda orch, *others: received.append(len(others)))
    worker.run(lambda orch, args, config=None: received.append(config is not None))
    worker.run(lambda orch=0, args=0, config=0: received.append(config is not None))
    worker.run(lambda s, y=None: received.append(type(s)))
    worker.run(lambda s, n=1, m=2: received.append(n + m))
    worker.run(Counter(received).program)
    worker.run(Counter(received).graph)
    worker.run(lambda s, one, two: received.append((one is x, two is x)), (x, x[:0]))
    assert received == [3, 2, True, True, Session, 3, 10, CallConfig, (True, False)]
    with pytest.raises(
        UsageError, match=r"lambda>\(\) cannot be called with a session and the 0 a"
    ):
        worker.run(lambda s, x: None)
    with pytest.raises(UsageError, match="the 1 arrays of args; write a program"):
        worker.graph(lambda orch, args, config: None, [x])
    with pytest.raises(TypeError):
        worker.run(lambda s: None, TaskArgs())
    refused = (
        ((np.zeros(4),), r"args\[0\] is an array of this process only.* worker.array\(x\)"),
        ((3,), r"args\[0\] is 3, which is no array; pass a tuple of arrays of the Worker"),
        ((worker.shared_array((4, 4)).T,), r"args\[0\] is not C-contiguous"),
        (x, r"args is array.*; pass a tuple of arrays of the Worker .* args=\(x,\)"),
    )
    for wrong, text in refused:
        for call in (worker.run, worker.capture):
            with pytest.raises(UsageError, match=text):
                call(lambda s, x: None, wrong)


def test_the_trace_of_a_worker_has_the_tasks_of_its_programs(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.shared_array(4), worker.shared_array(4)
    with worker.trace() as trace:
        worker.run(overwrites, (x, y))
        worker.replay(worker.capture(overwrites, (x, y)), (x, y))
    assert len(trace.tasks) == 10


def test_the_end_of_a_checked_session_names_tasks_that_race(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, z = (worker.shared_array(4) for _ in range(3))
    with worker.session(hazards="check") as s:
        s.submit(plus_one, x, y)
        s.submit(plus_one, y, z)
        assert s.submit(square, 3).result() == 9
        assert s.submit(square, 4).result() == 16  # reuses the memory of the first result

    def races(divisor: int) -> None:
        with worker.session(hazards="check") as s:
            s.submit(plus_one, x, y)
            s.submit(plus_one, z, x)
            assert 1 / divisor

    with pytest.raises(RaceError, match="plus_one#0 and plus_one#1 share 16 bytes") as error:
        races(1)
    assert any(__file__ in note for note in error.value.__notes__)
    with pytest.raises(ZeroDivisionError):
        races(0)
    with worker.session(hazards="check") as s:
        s.submit(plus_one, z, x, after=[s.submit(plus_one, x, y)])


@pytest.fixture
def graphs() -> Iterator[list[tuple[str, Any]]]:
    """Observe the graphs of the runs of this process."""
    seen = observation.Observation()
    observation.begin(seen)
    yield seen.graphs
    observation.begin(None)


def of_json(graph: Any) -> Any:
    """Return tasks and edges without what differs between runs, and without names of memory."""
    facts = graph.to_json()
    for one in facts["tasks"]:
        del one["id"], one["name"]
    for edge in facts["edges"]:
        edge["reasons"] = [reason["why"] for reason in edge["reasons"]]
    return facts


# Invariant: The graph of a session that has run is the one that its program has without a run.
def test_the_log_of_a_session_has_the_graph_of_its_program(make: Any, graphs: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, z = (worker.shared_array(4) for _ in range(3))

    def program(s: Session) -> None:
        for _ in range(3):
            with s.scope():
                part = s.empty(4)  # each time at the same address
                s.submit(plus_one, x, part)
                s.submit(plus_one, part, y)
        group = s.submit_group(plus_one, [(x, y), (x, z)])
        s.submit(plus_one, z, x, after=[group])
        order = s.submit(nothing)
        for number in range(3):  # each result may be at the same address
            result = s.submit(square, number)
            s.submit(add, result, z)
            s.submit(add, [result, order], y[:2])

    with worker.session() as s:
        program(s)
    worker.run(program)
    worker.run(lambda s: [s.submit(square, 2).result(), s.submit(nothing).wait()])
    expected = of_json(worker.graph(program))
    assert [of_json(graph) for _, graph in graphs[:2]] == [expected] * 2
    assert [len(graph) for _, graph in graphs] == [18, 18, 2]
    assert {path for path, _ in graphs} == {"L3"}


def test_a_session_and_a_run_that_fail_have_a_graph(make: Any, graphs: Any) -> None:
    worker = make(num_sub_workers=1)

    def fails(s: Session) -> None:
        s.submit(square, 2)
        s.submit(square, "text")

    def raises(s: Session) -> None:
        fails(s)
        raise ZeroDivisionError

    for program, error in ((fails, TaskFailedError), (raises, ZeroDivisionError)):
        with pytest.raises(error):
            worker.run(program)
        with pytest.raises(error), worker.session() as s:
            program(s)
    assert [len(graph) for _, graph in graphs] == [2, 2, 2, 2]


def test_arguments_of_a_program_that_are_not_contiguous_are_refused_with_advice(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array((4, 4))
    for part in (x[:, 2:], x.T, x[::2]):
        with pytest.raises(UsageError, match="and take the part in the function"):
            worker.run(lambda s, x: s.submit(plus_one, x, x), (part,))


def test_the_setting_hazards_checks_graph_functions_only(make: Any) -> None:
    worker = make(num_sub_workers=2, hazards="check")
    x, y = worker.shared_array(4), worker.shared_array(4)
    found = []

    def waits(s: Session) -> None:
        overwrites(s, x, y)
        found.append(s.submit(square, 2).result())

    worker.run(waits)
    assert found == [4]
    assert x.tolist() == [4, 4, 2, 2]
