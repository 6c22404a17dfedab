"""The graph of a Worker's graph function has the edges of its captured form, with reasons."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from sequential_programs import ARRAYS, program, submit_all, work
from task_arguments import given

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.graphs import Why

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
    assert [task.blocks for task in made.tasks] == [0, 2, 0]
    assert [task.scope for task in made.tasks] == [0, 0, None]
    assert made.task(0).where.startswith(__file__)
    (edge,) = made.edges
    assert (edge.first, edge.second) == (0, 1)
    assert {reason.why for reason in edge.reasons} == {Why.READ}
    assert edge.reasons[0].first == "argument 0"
    assert made.task(0).kernel == handle.name
