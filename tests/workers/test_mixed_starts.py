"""A Worker with both forked and spawned children. A child keeps its start method when restarted."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lost_children import await_count, kill
from start_tasks import open_mappings
from task_arguments import given

from pto_core import ContinuousTensor, TensorArgType, Worker
from pto_core.errors import UsageError
from pto_core.worker import child_group

METHODS = ("fork", "spawn", "fork")
FORKED, SPAWNED = 0, 1  # the numbers of the children
PID, IS_SPAWNED, MAPPINGS = range(3)  # the indices of a child's report

MakeMixed = Callable[..., Worker]


@pytest.fixture
def mixed(make, monkeypatch: pytest.MonkeyPatch) -> MakeMixed:
    """Make a Worker whose children have the start methods in ``METHODS``."""
    real = child_group.child_specs

    def specs(*arguments: Any) -> list[Any]:
        made = zip(real(*arguments), METHODS, strict=True)
        return [replace(spec, start_method=method) for spec, method in made]

    monkeypatch.setattr(child_group, "child_specs", specs)
    return lambda **settings: make(num_sub_workers=len(METHODS), **settings)


def reports(worker: Worker, handle: Any) -> np.ndarray:
    """Return the reports of all children."""
    rows = worker.shared_array((len(METHODS), 3), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for child, row in enumerate(rows):
            orch.submit_sub(handle, given((row, TensorArgType.OUTPUT_EXISTING)), worker=child)

    worker.run(graph)
    return np.array(rows)


# Invariant: Each child is started by its own method, even when it is restarted, and no child
# inherits the descriptors of the mappings.
def test_each_child_starts_and_restarts_by_its_own_method(mixed: MakeMixed) -> None:
    others = open_mappings()  # of earlier tests; forked children inherit them
    worker = mixed(on_worker_death="restart")
    handle = worker.register("start_tasks:report")
    seen = [reports(worker, handle)]
    for restarts, child in enumerate((FORKED, SPAWNED), start=1):
        kill(int(seen[-1][child, PID]))
        assert await_count(worker, "restarts", restarts) == restarts
        seen.append(reports(worker, handle))
        changed = seen[-1][:, PID] != seen[-2][:, PID]
        assert np.flatnonzero(changed).tolist() == [child]
    for each in seen:
        assert each[:, IS_SPAWNED].tolist() == [method == "spawn" for method in METHODS]
        limits = [0 if method == "spawn" else others for method in METHODS]
        assert (each[:, MAPPINGS] <= limits).all(), each


def test_callables_that_only_forked_children_have_run_there(mixed: MakeMixed) -> None:
    worker = mixed()
    rows = worker.shared_array((2, 1), "int64")
    number = 5

    def write(args: Any) -> None:
        args.tensor(0)[:] = number

    handle = worker.register(write)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for child, row in zip((0, 2), rows, strict=True):
            orch.submit_sub(handle, given((row, TensorArgType.OUTPUT_EXISTING)), worker=child)

    worker.run(graph)
    assert rows.tolist() == [[number]] * 2


# Invariant: Memory that only forked children have is accepted for a task that runs on one of them.
def test_only_tasks_on_forked_children_may_use_inherited_memory(mixed: MakeMixed) -> None:
    worker = mixed()
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    row = np.frombuffer(memory, np.int64)[:3]
    handle = worker.register("start_tasks:report")
    tensor = ContinuousTensor.from_array(row)
    many = ContinuousTensor.from_array(row.reshape(1, 3))

    def graph(orch: Any, args: Any, config: Any) -> None:
        tag = TensorArgType.OUTPUT_EXISTING
        orch.submit_sub(handle, given((tensor, tag)), worker=FORKED)
        orch.submit_sub_group(handle, [given((tensor, tag))], workers=[FORKED])
        refused = pytest.raises(UsageError, match="start_method='spawn' do not have")
        with refused:
            orch.submit_sub(handle, given((tensor, tag)), worker=SPAWNED)
        with refused:
            orch.submit_sub(handle, given((tensor, tag)))
        with refused:
            orch.submit_sub(handle, given((tensor, tag)), worker=FORKED, hint=True)
        with refused:
            orch.submit_sub_many(handle, given((many, tag)))

    worker.run(graph)
    assert row[PID] > 0
