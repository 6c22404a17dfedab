"""The graph of a Worker's graph function has the edges of its captured form, with reasons."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from sequential_programs import ARRAYS, program, submit_all, work
from task_arguments import given

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.errors import RaceError, UsageError
from pto_insight.graphs import Why

IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
SEEDS = 4


def submits(handle: Any, seed: int) -> Any:
    """Return the graph function of a random program on the tensors of its arguments."""
    steps = program(random.Random(seed), 1, 0.0)

    def graph(orch: Any, args: Any, config: Any) -> None:
        rows = [args.tensor(row) for row in range(ARRAYS)]
        submit_all(orch, handle, steps, rows, random.Random(seed))

    return graph


def nothing(args: Any) -> None:
    pass


@pytest.mark.parametrize("hazards", ["raw", "full"])
def test_the_recomputed_edges_are_those_of_the_capture(hazards: str) -> None:
    with Worker(level=3, num_sub_workers=1) as worker:
        handle = worker.register(work)
        memory = worker.shared_array((ARRAYS, 16), np.int64)
        for seed in range(SEEDS):
            graph = submits(handle, seed)
            args = given(*((row, INOUT) for row in memory))
            captured = worker.capture(graph, args, hazards=hazards)
            made = worker.graph(graph, args, hazards=hazards)
            assert len(made) == captured.task_count
            assert [(edge.first, edge.second) for edge in made.edges] == captured.edges
            assert made.to_json() == worker.graph(graph, args, hazards=hazards).to_json()


def test_a_worker_graph_names_arguments_outputs_groups_and_scopes() -> None:
    with Worker(level=3, num_sub_workers=2) as worker:
        handle = worker.register(nothing)
        data = worker.shared_array(8, np.float32)

        def graph(orch: Any, args: Any, config: Any) -> None:
            source = args.tensor(0)
            with orch.scope():
                orch.submit_sub(handle, given((source, INOUT)))
                members = [given((source, IN)), given((source, IN))]
                orch.submit_sub_group(handle, members)
            orch.submit_sub(handle, TaskArgs())

        made = worker.graph(graph, given((data, INOUT)))
    assert [task.members for task in made.tasks] == [0, 2, 0]
    assert {task.blocks for task in made.tasks} == {0}
    assert made.to_svg().count("class='member'") == 2
    assert [task.scope for task in made.tasks] == [0, 0, None]
    assert made.task(0).where.startswith(__file__)
    (edge,) = made.edges
    assert (edge.first, edge.second) == (0, 1)
    assert {reason.why for reason in edge.reasons} == {Why.READ}
    assert edge.reasons[0].first == "argument 0"
    assert made.task(0).kernel == handle.name


def overwrites(handle: Any) -> Any:
    """Return a graph function whose second task overwrites what the first one reads."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((args.tensor(0), IN)))
        orch.submit_sub(handle, given((args.tensor(0), OUT)))

    return graph


def count(args: Any) -> None:
    args.tensors[0].numpy()[0] += 1


def test_a_worker_check_finds_tasks_that_race_without_running_them() -> None:
    with Worker(level=3, num_sub_workers=1) as worker:
        graph = overwrites(worker.register(count))
        data = worker.shared_array(8, np.int64)
        args = given((data, INOUT))
        (race,) = worker.check(graph, args).races
        assert (race.first.index, race.second.index) == (0, 1)
        assert race.first.where.startswith(__file__)
        assert worker.check(graph, args, hazards="full").is_clean
        assert data[0] == 0


def test_hazards_check_fails_a_run_before_its_first_task() -> None:
    with Worker(level=3, num_sub_workers=1) as worker:
        handle = worker.register(count)
        graph = overwrites(handle)
        data = worker.shared_array(8, np.int64)
        args = given((data, INOUT))
        with pytest.raises(RaceError, match="1 pair of tasks races"):
            worker.run(graph, args, hazards="check")
        assert data[0] == 0
        worker.run(graph, args)
        assert data[0] == 2

        def ordered(orch: Any, args: Any, config: Any) -> None:
            for _ in range(2):
                orch.submit_sub(handle, given((args.tensor(0), INOUT)))

        worker.run(ordered, args, hazards="check")
        assert data[0] == 4
        with pytest.raises(UsageError, match="args is a view; pass a TaskArgs"):
            worker.run(ordered, args.view(), hazards="check")


def test_the_setting_check_checks_each_run_of_a_worker() -> None:
    with Worker(level=3, num_sub_workers=1, hazards="check") as worker:
        graph = overwrites(worker.register(count))
        data = worker.shared_array(8, np.int64)
        with pytest.raises(RaceError, match="1 pair of tasks races"):
            worker.run(graph, given((data, INOUT)))
        worker.run(graph, given((data, INOUT)), hazards="full")
        assert data[0] == 2
