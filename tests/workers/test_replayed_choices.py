"""A replay repeats how and where a task runs: its configuration, hints, and the policy."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from task_arguments import given

from pto_core import CallConfig, TaskArgs, TensorArgType

INOUT, NO_DEP = TensorArgType.INOUT, TensorArgType.NO_DEP
CHILDREN = 3
PATIENCE_S = 20


def record_process(args: Any) -> None:
    args.tensor(0)[:] = os.getpid()


def meet(args: Any) -> None:
    """Record the process of this member, and wait until all members have done so."""
    found = args.tensor(0)
    found[args.scalar(0)] = os.getpid()
    limit = time.monotonic() + PATIENCE_S
    while not found.all() and time.monotonic() < limit:
        time.sleep(0.001)


def record_config(orch: Any, args: Any, config: CallConfig) -> None:
    args.tensor(0)[:] = 10 * config.block_dim + config.aicpu_thread_num


def pids(worker: Any) -> list[int]:
    """Return the process of each child, by its number."""
    handle, found = worker.register(record_process), worker.shared_array((CHILDREN, 1), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for child, place in enumerate(found):
            orch.submit_sub(handle, given((place, INOUT)), worker=child)

    worker.run(graph)
    return [int(pid) for pid in found[:, 0]]


def test_a_task_has_its_own_configuration_or_that_of_the_capture(make: Any) -> None:
    top = make(level=4)
    for _ in range(2):
        top.add_worker(make(num_sub_workers=1))
    handle = top.register(record_config)
    records = top.shared_array((6, 1), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        rows = args.tensors
        for by in (1, 2):
            orch.submit_next_level(handle, given((rows[by - 1], INOUT)), CallConfig(by))
        orch.submit_next_level(handle, given((rows[2], INOUT)))
        both = [given((row, INOUT)) for row in rows[3:5]]
        orch.submit_next_level_group(handle, both, CallConfig(5, 1))
        orch.submit_next_level(handle, given((rows[5], INOUT)), CallConfig())

    def args() -> TaskArgs:
        return given(*((row, INOUT) for row in records))

    captured = [(2, top.capture(graph, args(), CallConfig(9, 2)))]
    captured.append((3, top.capture(graph, args())))
    for threads, one in (*captured, *captured):
        records[:] = 0
        top.replay(one, args())
        of_the_capture = 92 if threads == 2 else 3
        assert records[:, 0].tolist() == [13, 23, of_the_capture, 51, 51, 3]


def test_a_hint_is_replayed_and_delays_nothing(make: Any) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=1)
    known, handle = pids(worker), worker.register(meet)
    found = worker.shared_array((CHILDREN,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for place in range(CHILDREN):
            orch.submit_sub(
                handle, given((args.tensors[0], NO_DEP), scalars=(place,)), worker=1, hint=True
            )

    captured = worker.capture(graph, given((found, INOUT)))
    for _ in range(3):
        found[:] = 0
        worker.replay(captured, given((found, INOUT)))
        assert known.index(found[0]) == 1, "the first task did not run on child 1"
        assert {known.index(pid) for pid in found[1:]} == {0, 2}, (
            "the other tasks did not run on the other children"
        )


def test_the_hints_of_a_group_are_replayed(make: Any) -> None:
    worker = make(num_sub_workers=CHILDREN)
    known, handle = pids(worker), worker.register(record_process)
    found = worker.shared_array((2, 1), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        members = [given((row, INOUT)) for row in args.tensors]
        orch.submit_sub_group(handle, members, workers=[2, 1], hint=True)

    def args() -> TaskArgs:
        return given(*((row, INOUT) for row in found))

    captured = worker.capture(graph, args())
    for _ in range(3):
        found[:] = 0
        worker.replay(captured, args())
        assert [known.index(pid) for pid in found[:, 0]] == [2, 1]


def test_the_policy_chooses_in_a_replay(make: Any) -> None:
    asked: list[int] = []

    def last(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        asked.append(len(candidates))
        return candidates[-1][0]

    worker = make(num_sub_workers=CHILDREN, policy=last)
    known, handle = pids(worker), worker.register(record_process)
    found = worker.shared_array((4,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for _ in range(2):
            orch.submit_sub(handle, given((args.tensors[0], INOUT)))

    captured = worker.capture(graph, given((found, INOUT)))
    assert asked == [], "the policy was called for a pinned task or a capture"
    for replays in range(1, 4):
        found[:] = 0
        worker.replay(captured, given((found, INOUT)))
        assert known.index(found[0]) == CHILDREN - 1
        assert len(asked) >= replays
