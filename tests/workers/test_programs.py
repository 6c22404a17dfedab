"""A program, which receives a session, can be run, drawn, checked, captured and traced."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from pto_core import In, InOut, Out, Session, TaskArgs, task
from pto_core.errors import RaceError, UsageError


@task
def plus_one(x: In, out: Out) -> None:
    out[:] = x + 1


@task
def add(value: Any, out: InOut) -> None:
    out += np.sum(value)


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


def test_a_handle_of_a_captured_task_has_no_result(make: Any) -> None:
    worker = make(num_sub_workers=1)
    remedy = "was only recorded.* pass the handle itself to another submit"
    for call in (worker.graph, worker.check, worker.capture):
        with pytest.raises(UsageError, match=remedy):
            call(lambda s: s.submit(square, 2).result())
    found = []
    worker.run(lambda s: found.append(s.submit(square, 2).result()))
    assert found == [4]


def test_the_session_of_a_program_ends_with_it(make: Any) -> None:
    worker = make(num_sub_workers=1)
    kept: list[Session] = []
    worker.graph(kept.append)
    with pytest.raises(UsageError, match="inside its block only"):
        kept[0].submit(square, 2)
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda s: 1 / 0)
    assert worker.map(abs, [-1]) == [1]


def test_the_parameters_tell_a_program_from_a_graph_function(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)
    received: list[Any] = []
    worker.run(lambda *all_of_them: received.append(len(all_of_them)))
    worker.run(lambda orch, args=None, config=None: received.append(config is not None))
    worker.run(lambda s, y=None: received.append(type(s)))
    worker.run(lambda s, one, two: received.append((one is x, two is x)), (x, x[:0]))
    assert received == [3, True, Session, (True, False)]
    with pytest.raises(UsageError, match=r"\(s, x\) cannot be called with a session and the 0 arr"):
        worker.run(lambda s, x: None)
    with pytest.raises(UsageError, match="the 1 arrays of args; write a program"):
        worker.graph(lambda orch, args, config: None, [x])
    with pytest.raises(TypeError):
        worker.run(lambda s: None, TaskArgs())
    for wrong, text in ((np.zeros(4), "of this process only"), (3, "which is no array")):
        with pytest.raises(UsageError, match=rf"args\[0\].*{text}"):
            worker.capture(lambda s, x: None, (wrong,))


def test_the_trace_of_a_worker_has_the_tasks_of_its_programs(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.shared_array(4), worker.shared_array(4)
    with worker.trace() as trace:
        worker.run(overwrites, (x, y))
        worker.replay(worker.capture(overwrites, (x, y)), (x, y))
    assert len(trace.tasks) == 10
