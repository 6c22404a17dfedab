"""Edges without a tensor: `after` of a submit, and `TaskArgs.add_dep` before it."""

# Invariant of this file: A task waits for the tasks that its submit names (`after`,
# `TaskArgs.add_dep`), also in a captured graph.

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from pto_core import In, InOut, Out, TaskArgs, TensorArgType, Worker, task
from pto_core.errors import TaskPoisonedError, UsageError

LIMIT_S = 30


@task
def hold(entrance: int, out: InOut) -> None:
    os.read(entrance, 1)
    out[:] = 1


@task
def one_more(x: In, out: Out) -> None:
    out[:] = x + 1


@task
def fail(out: Out) -> None:
    raise ValueError("no luck today")


def touch(args: Any) -> None:
    pass


def add_first_to_second(args: Any) -> None:
    args.tensor(1)[:] += args.tensor(0)


def given(*arrays: Any) -> TaskArgs:
    """Return arguments with these arrays, tagged NO_DEP so that they add no edges."""
    args = TaskArgs()
    for array in arrays:
        args.add_tensor(array, TensorArgType.NO_DEP)
    return args


def reader(seen: Any, target: Any) -> Callable[[], None]:
    def read_without_a_tensor(args: Any = None) -> None:
        target[:] = 1 + seen

    return read_without_a_tensor


def started(make: Any) -> tuple[Worker, Any, Any]:
    """Return a Worker, rows, and the handle of a task: second row = first row + 1."""
    worker = make(num_sub_workers=3)
    rows = worker.shared_array((4, 8))
    handle = worker.register(reader(rows[0], rows[1]))
    for one in (hold, one_more, fail):
        worker.register(one)
    worker.init()
    return worker, rows, handle


def test_a_task_waits_for_the_tasks_in_after(make, pipe) -> None:
    worker, rows, handle = started(make)
    with worker.session() as s:
        held = s.submit(hold, pipe[0], rows[0])
        last = s.orchestrator.submit_sub(handle, after=[held])
        typed = s.submit(one_more, rows[3], rows[2], after=(last,))
        group = s.submit_group(one_more, [(rows[2], rows[3])], after=[typed, held, typed])
        assert not any(one.wait(0.01) for one in (last, typed, group))
        os.write(pipe[1], b"!")
    assert (rows[1] == 2).all()
    assert (rows[2] == 1).all()
    assert (rows[3] == 2).all()


def test_a_task_waits_for_the_tasks_in_its_arguments(make, pipe) -> None:
    worker, rows, handle = started(make)
    plain, adding = worker.register(touch), worker.register(add_first_to_second)
    with worker.session() as s:
        held = s.submit(hold, pipe[0], rows[0])
        alone = TaskArgs()
        alone.add_dep()
        alone.add_dep(held)
        last = s.orchestrator.submit_sub(handle, alone)
        members = [given(rows[0], rows[2]), given(rows[0], rows[3])]
        members[1].add_dep(last, held)
        group = s.orchestrator.submit_sub_group(adding, members)
        parts = given(rows[1:2], counts := worker.shared_array((1, 8)))
        parts.add_dep(group)
        s.orchestrator.submit_sub_many(adding, parts)
        assert not any(one.wait(0.01) for one in (last, group))
        # The submit has removed the edges from the arguments, so a second submit waits for nothing.
        assert s.orchestrator.submit_sub(plain, alone).wait(LIMIT_S)
        assert not held.done()
        os.write(pipe[1], b"!")
    assert (rows[1] == 2).all()
    assert (rows[2:] == 1).all()
    assert (counts == 2).all()


def test_a_failure_poisons_along_explicit_edges(make) -> None:
    worker, rows, handle = started(make)
    with worker.session() as s:
        failed = s.submit(fail, rows[0])
        last = s.orchestrator.submit_sub(handle, after=[failed])
        assert isinstance(last.exception(LIMIT_S), TaskPoisonedError)
        # Here the producer has failed before the consumer is submitted.
        args = TaskArgs()
        args.add_dep(failed)
        late = s.orchestrator.submit_sub(handle, args)
        assert isinstance(late.exception(LIMIT_S), TaskPoisonedError)
    assert (rows[1] == 0).all()


def test_invalid_dependencies_are_refused_before_the_submit(make) -> None:
    worker, rows, handle = started(make)
    with worker.session() as s:
        earlier = s.submit(one_more, rows[0], rows[2])
    with worker.session() as s:
        for after, message in (
            ([earlier], "task 0 is not an earlier task of this run"),
            ([None], "after has None; pass task handles of this Worker"),
            (7, "after is 7; pass a list of task handles"),
        ):
            with pytest.raises(UsageError, match=message):
                s.orchestrator.submit_sub(handle, after=after)
        for producer, message in (
            (earlier, "task 0 is not an earlier task of this run"),
            (None, "add_dep got None; pass task handles of this Worker"),
        ):
            args = TaskArgs()
            args.add_dep(producer)
            with pytest.raises(UsageError, match=message):
                s.orchestrator.submit_sub(handle, args)
        assert worker.statistics()["submitted"] == 0


def test_a_captured_graph_keeps_its_explicit_edges(make, pipe) -> None:
    worker, rows, handle = started(make)
    holding = worker.register(hold_by_number)

    def graph(orch: Any, args: Any, config: Any) -> None:
        entrance = TaskArgs()
        entrance.add_tensor(args.tensors[0], TensorArgType.INOUT)
        entrance.add_scalar(pipe[0])
        held = orch.submit_sub(holding, entrance, worker=0)
        orch.submit_sub(handle, worker=1, after=[held, held])

    def arguments() -> TaskArgs:
        args = TaskArgs()
        args.add_tensor(rows[0], TensorArgType.INOUT)
        return args

    captured = worker.capture(graph, arguments())
    os.write(pipe[1], b"!!")
    for times in (1, 2):
        worker.replay(captured, arguments())
        assert (rows[1] == times + 1).all()


def hold_by_number(args: Any) -> None:
    os.read(args.scalar(0), 1)
    time.sleep(0.02)
    args.tensor(0)[:] += 1
