"""Errors outside and during a replay are reported, and the Worker remains usable."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import ContinuousTensor, TensorArgType
from pto_core.errors import CapacityError, DeadlockError, PtoError, UsageError

IN, INOUT = TensorArgType.INPUT, TensorArgType.INOUT
SOON_S = 30.0


def touch(args: Any) -> None:
    args.tensor(0)[:] += 1


def read(args: Any) -> None:
    args.tensor(0).sum()


def signal_and_wait(args: Any) -> None:
    """Set the first flag, and wait until the second flag is set."""
    flags = args.tensor(0)
    flags[0] = 1
    soon = time.monotonic() + SOON_S
    while not flags[1] and time.monotonic() < soon:
        time.sleep(1e-3)


def until(is_so: Any) -> None:
    soon = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < soon
        time.sleep(1e-3)


def check_goes_on(worker: Any, handle: Any) -> None:
    """Check that a run and a replay of one task each still work."""
    row = worker.shared_array((4,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((args.tensors[0], INOUT)))

    worker.run(graph, given((row, INOUT)))
    worker.replay(worker.capture(graph, given((row, INOUT))), given((row, INOUT)))
    assert row.tolist() == [2] * 4


@pytest.mark.parametrize(
    ("error", "message", "times", "nbytes"),
    [
        (DeadlockError, "Set heap_ring_size to at least", 100, 1000),
        (CapacityError, "heap_ring_size", 1, 1 << 20),
    ],
)
def test_a_replay_that_stops_inside_a_scope_states_the_reason(
    make: Any, error: type[PtoError], message: str, times: int, nbytes: int
) -> None:
    worker = make(num_sub_workers=1, heap_ring_size=1 << 14)
    handle = worker.register(touch)

    def graph(orch: Any, args: Any, config: Any) -> None:
        with orch.scope(), orch.scope():
            for _ in range(times):
                orch.alloc((nbytes,), "int8")

    captured = worker.capture(graph)
    for _ in range(2):
        with pytest.raises(error, match=message):
            worker.replay(captured)
    check_goes_on(worker, handle)


def test_an_open_scope_at_the_end_of_a_graph_is_an_error_and_the_run_ends(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)

    def leaves(orch: Any, args: Any, config: Any) -> None:
        orch.scope().__enter__()

    def raises(orch: Any, args: Any, config: Any) -> None:
        orch.scope().__enter__()
        raise ValueError("mine")

    with pytest.raises(UsageError, match="1 scopes open"):
        worker.run(leaves)
    check_goes_on(worker, handle)
    with pytest.raises(ValueError, match="mine"):
        worker.run(raises)
    check_goes_on(worker, handle)
    with pytest.raises(UsageError, match="1 scopes open"), worker.session() as session:
        session.scope().__enter__()
    check_goes_on(worker, handle)


def test_memory_that_a_replay_saves_must_be_shared(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)
    row, own = worker.shared_array((4,), "int64"), np.zeros(4, "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((args.tensors[0], INOUT)), retries=1)

    captured = worker.capture(graph, given((row, INOUT)))
    private = ContinuousTensor.from_pointer(own.ctypes.data, (4,), "int64")
    with pytest.raises(UsageError, match="shared_array"):
        worker.replay(captured, given((private, INOUT)))
    worker.replay(captured, given((row, INOUT)))
    assert row.tolist() == [1] * 4


def test_memory_that_encloses_an_argument_is_not_captured(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)
    whole = worker.shared_array((30,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((whole, INOUT)))

    with pytest.raises(UsageError, match="partly inside an argument"):
        worker.capture(graph, given((whole[10:20], INOUT)))


@pytest.fixture
def replaying(make: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Provide a Worker after half of the submits of a replay, its orchestrator, and a handle."""
    worker = make(num_sub_workers=1, heap_ring_size=1 << 14)
    gate, handle = worker.register(signal_and_wait), worker.register(touch)
    flags = worker.shared_array((2,), "int64")

    orchestrators: list[Any] = []

    def graph(orch: Any, args: Any, config: Any) -> None:
        orchestrators.append(orch)
        for _ in range(8):  # more buffers than fit in the ring at once
            with orch.scope():
                made = orch.alloc((4000,), "int8")
                orch.submit_sub(gate, given((args.tensors[0], INOUT), (made, IN)))

    captured = worker.capture(graph, given((flags, INOUT)))
    ended: list[bool] = []

    def replay() -> None:
        worker.replay(captured, given((flags, INOUT)))
        ended.append(True)

    thread = threading.Thread(target=replay)
    thread.start()
    try:
        until(lambda: flags[0])
        yield worker, orchestrators[0], handle
    finally:
        flags[1] = 1
        thread.join(SOON_S)
    assert not thread.is_alive()
    assert ended == [True]


def test_no_other_call_adds_to_a_run_during_a_replay(replaying: Any) -> None:
    worker, orch, handle = replaying
    row = worker.shared_array((4,), "int64")
    for submit in (
        lambda: orch.submit_sub(handle, given((row, INOUT))),
        lambda: orch.submit_sub_many(handle, given((row, INOUT))),
        lambda: orch.alloc((4,), "int64"),
        lambda: orch.scope().__enter__(),
        lambda: orch.scope().__exit__(),
    ):
        with pytest.raises(UsageError, match="outside its run"):
            submit()


def test_a_replay_writes_no_array_that_is_read_only(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle, reader = worker.register(touch), worker.register(read)
    row = worker.shared_array((4,), "int64")
    kept = row.view()
    kept.flags.writeable = False

    def graph_of(callable_: Any, tag: TensorArgType) -> Any:
        return worker.capture(
            lambda orch, args, config: orch.submit_sub(callable_, given((args.tensors[0], tag))),
            given((row, INOUT)),
        )

    with pytest.raises(UsageError, match="read-only"):
        worker.replay(graph_of(handle, INOUT), given((kept, IN)))
    assert row.tolist() == [0] * 4
    worker.replay(graph_of(reader, IN), given((kept, IN)))


def test_a_buffer_of_a_capture_is_refused_to_many_tasks_of_a_run(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)
    kept: list[Any] = []
    worker.capture(lambda orch, args, config: kept.append(orch.alloc((4, 4), "int64")))
    with pytest.raises(UsageError, match="allocated by the capture"):
        worker.run(lambda orch, args, config: orch.submit_sub_many(handle, given((kept[0], INOUT))))
    check_goes_on(worker, handle)


def test_a_captured_graph_references_each_array_once(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(read)
    rows = [worker.shared_array((4,), "int64") for _ in range(2)]

    def graph(orch: Any, args: Any, config: Any) -> None:
        for number in range(100):
            orch.submit_sub(handle, given((rows[number % 2], IN)))

    before = [sys.getrefcount(row) for row in rows]
    captured = worker.capture(graph)
    assert [sys.getrefcount(row) for row in rows] == [count + 1 for count in before]
    worker.replay(captured)
