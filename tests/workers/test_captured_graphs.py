"""A replay of a captured graph is a run with the same tasks, order and failures on other memory."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sequential_programs import (
    ARRAYS,
    DIES,
    WORDS,
    Step,
    program,
    sequential,
    submit_all,
    work,
)
from task_arguments import given

from pto_core import (
    CallConfig,
    ChipCallable,
    ContinuousTensor,
    DataType,
    InOut,
    Scalar,
    TaskArgs,
    TensorArgType,
    kernel,
)
from pto_core.errors import (
    ChildDiedError,
    ChildHungError,
    PtoError,
    TaskFailedError,
    UsageError,
    WorkerClosedError,
)

IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
SEEDS = 6


def add(args: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) + args.scalar(0)


def accumulate(args: Any) -> None:
    args.tensor(1)[:] += args.tensor(0)


def touch(args: Any) -> None:
    args.tensor(0)[:] += 1


def touch_after_a_failure(args: Any) -> None:
    """Change the first array. If the second has an odd number, make it even and fail."""
    args.tensor(0)[:] += 1
    if args.tensor(1)[0] % 2:
        args.tensor(1)[0] += 1
        raise ValueError("once")


def set_late(args: Any) -> None:
    """Wait, so that tasks which do not wait for this one can overtake it."""
    time.sleep(0.1)
    args.tensor(0)[:] = 7


def record_process(args: Any) -> None:
    args.tensor(0)[:] = os.getpid()


def run_on(args: Any) -> None:
    time.sleep(30)


@kernel(core="aiv")
def shift(data: InOut, by: Scalar) -> None:
    data += by


def shift_on_chip(rt: Any, data: InOut, by: Scalar) -> None:
    rt.submit(shift, data, by)


def all_of(memory: Any) -> TaskArgs:
    return given(*((row, INOUT) for row in memory))


def submits(handle: Any, steps: list[Step], seed: int) -> Any:
    """Return the graph function that submits the steps, on the tensors of its arguments."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        memory = [args.tensor(row) for row in range(ARRAYS)]
        submit_all(orch, handle, steps, memory, random.Random(seed))

    return graph


def check_replay(worker: Any, graph: Any, memory: Any, steps: list[Step], seed: int) -> None:
    memory[:] = np.arange(ARRAYS)[:, None] + seed
    expected = memory.copy()
    failed, poisoned = sequential(steps, expected)
    error: Any = None
    try:
        worker.replay(graph, all_of(memory))
    except (TaskFailedError, ChildDiedError) as caught:
        error = caught
    np.testing.assert_array_equal(memory, expected, f"seed {seed}")
    assert (error is None) == (not failed), f"seed {seed}"
    if error is not None:
        assert 1 + len(error.failures) == len(failed), f"seed {seed}"
        assert len(error.poisoned) == len(poisoned), f"seed {seed}"


# Invariant: A replay is a run: it has the tasks, order, failures and poisoned tasks of the captured
# submits, for all arguments.
@pytest.mark.parametrize("failures", [0.0, 0.04], ids=["whole", "failing"])
@pytest.mark.parametrize("children", [1, 3])
def test_a_replay_of_any_graph_has_the_sequential_result(
    make: Any, children: int, failures: float
) -> None:
    worker = make(num_sub_workers=children, child_window=4, heap_ring_size=1 << 16)
    handle = worker.register(work)
    first, second = (worker.shared_array((ARRAYS, WORDS), "int64") for _ in range(2))
    for seed in range(SEEDS):
        steps = program(random.Random(seed), children, failures)
        first[:] = seed
        graph = worker.capture(submits(handle, steps, seed), all_of(first), hazards="full")
        assert (first == seed).all(), "the capture ran a task"
        for memory in (first, second, second):
            check_replay(worker, graph, memory, steps, seed)


def test_a_replay_whose_child_is_killed_fails_as_a_run_does(make: Any) -> None:
    worker = make(num_sub_workers=2, child_window=1, on_worker_death="restart")
    handle = worker.register(work)
    memory = worker.shared_array((ARRAYS, WORDS), "int64")
    for seed in range(3):
        numbers = random.Random(seed)
        steps = program(numbers, 2, 0.0)
        singles = [at for at, step in enumerate(steps) if len(step.members) == 1]
        killer = numbers.choice(singles)
        steps[killer] = replace(steps[killer], fails=DIES)
        graph = worker.capture(submits(handle, steps, seed), all_of(memory), hazards="full")
        for _ in range(2):
            check_replay(worker, graph, memory, steps, seed)


def test_arguments_that_overlap_are_ordered_as_in_a_run(make: Any) -> None:
    worker = make(num_sub_workers=2)
    total = worker.register(accumulate)
    both, other = worker.shared_array((16,), "int64"), worker.shared_array((16,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        x, y = args.tensors
        for _ in range(20):
            orch.submit_sub(total, given((x, IN), (y, INOUT)))
            orch.submit_sub(total, given((y, IN), (other[:8], INOUT)))

    def args(low: int, array: Any = both) -> TaskArgs:
        return given((both[:8], INOUT), (array[low : low + 8], INOUT))

    captured = worker.capture(graph, args(8), hazards="full")
    for low, array in ((8, both), (4, both), (0, both), (0, other), (3, other)):
        answers = []
        for run in (
            lambda args: worker.replay(captured, args),
            lambda args: worker.run(graph, args, hazards="full"),
        ):
            both[:], other[:] = np.arange(16), 1
            run(args(low, array))
            answers.append(np.concatenate([both, other]))
        np.testing.assert_array_equal(*answers)


def test_arguments_that_were_separate_and_now_overlap_get_the_edges_of_a_run(make: Any) -> None:
    worker = make(num_sub_workers=2)
    late, plus, once = (worker.register(f) for f in (set_late, add, touch_after_a_failure))
    x, y, out, seen = (worker.shared_array((4,), "int64") for _ in range(4))
    tries = worker.shared_array((1,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        x, y, out, seen, tries = args.tensors
        with orch.scope():
            between = orch.alloc((4,), DataType.INT64)
            writes = orch.submit_sub(late, given((x, OUT)), worker=0)
            orch.submit_sub(plus, given((y, IN), (between, INOUT), scalars=(0,)), worker=1)
            orch.submit_sub(plus, given((between, IN), (out, INOUT), scalars=(0,)), worker=1)
            unseen = given((x, TensorArgType.NO_DEP), (seen, INOUT), scalars=(0,))
            unseen.add_dep(writes)
            reads = orch.submit_sub(plus, unseen, worker=1)
            changes = given((y, INOUT), (tries, TensorArgType.NO_DEP))
            orch.submit_sub(once, changes, retries=1, after=[reads])

    def args(y: Any) -> TaskArgs:
        return given((x, INOUT), (y, INOUT), (out, INOUT), (seen, INOUT), (tries, INOUT))

    captured = worker.capture(graph, args(y), hazards="full")
    for second, copied, touched in ((y, 5, 6), (x, 7, 8)):
        x[:], y[:], out[:], seen[:], tries[:] = 0, 5, 0, 0, 1
        worker.replay(captured, args(second))
        assert (out[0], seen[0], second[0]) == (copied, 7, touched)


def test_an_argument_inside_memory_that_the_graph_names_gets_the_edges_of_a_run(
    make: Any,
) -> None:
    """The graph names a whole table and, separately, a part of it."""
    worker = make(num_sub_workers=2)
    late, plus = worker.register(set_late), worker.register(add)
    table, out = worker.shared_array((16,), "int64"), worker.shared_array((16,), "int64")
    x, part = worker.shared_array((4,), "int64"), worker.shared_array((2,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        x, out = args.tensors
        orch.submit_sub(plus, given((table[2:4], IN), (part, INOUT), scalars=(0,)), worker=1)
        orch.submit_sub(late, given((x, OUT)), worker=0)
        orch.submit_sub(plus, given((table, IN), (out, INOUT), scalars=(0,)), worker=1)

    captured = worker.capture(graph, given((x, INOUT), (out, INOUT)))
    for array, expected in ((x, 5), (table[8:12], 7)):
        table[:] = 5
        worker.replay(captured, given((array, INOUT), (out, INOUT)))
        assert out[8:12].tolist() == [expected] * 4


def test_pins_dependencies_and_time_limits_are_those_of_the_capture(make: Any) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    late, record, plus = (worker.register(f) for f in (set_late, record_process, add))
    forever = worker.register(run_on)
    x, seen, pids = (worker.shared_array((4,), "int64") for _ in range(3))

    def graph(orch: Any, args: Any, config: Any) -> None:
        x, seen = args.tensors[:2]
        pids = args.tensor(2)
        for place, child in enumerate((0, 1, 1, 0)):
            orch.submit_sub(record, given((pids[place : place + 1], INOUT)), worker=child)
        writes = orch.submit_sub(late, given((x, OUT)), worker=0)
        unseen = given((x, TensorArgType.NO_DEP), (seen, INOUT), scalars=(0,))
        orch.submit_sub(plus, unseen, worker=1, after=[writes])

    def args() -> TaskArgs:
        return given((x, INOUT), (seen, INOUT), (pids, INOUT))

    captured = worker.capture(graph, args())
    for _ in range(2):
        x[:], seen[:], pids[:] = 0, 0, 0
        worker.replay(captured, args())
        first, second, third, fourth = pids.tolist()
        assert first == fourth != second == third
        assert seen.tolist() == [7] * 4
    limited = worker.capture(
        lambda orch, args, config: orch.submit_sub(forever, TaskArgs(), timeout_s=0.2)
    )
    with pytest.raises(ChildHungError):
        worker.replay(limited)


def test_each_replay_allocates_its_own_buffers(make: Any) -> None:
    worker = make(num_sub_workers=2, heap_ring_size=1 << 13)
    plus, total = worker.register(add), worker.register(accumulate)
    x, y = worker.shared_array((100,), "int64"), worker.shared_array((100,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        x, y = args.tensors
        for number in range(40):  # more buffers than fit in the ring at once
            with orch.scope():
                between = orch.alloc((100,), DataType.INT64)
                orch.submit_sub(plus, given((x, IN), (between, INOUT), scalars=(number,)))
                made = ContinuousTensor.from_pointer(0, (100,), DataType.INT64)
                orch.submit_sub(plus, given((between, IN), (made, OUT), scalars=(1,)))
                orch.submit_sub(total, given((made, IN), (y, INOUT)))

    captured = worker.capture(graph, given((x, IN), (y, INOUT)))
    for round_ in range(3):
        x[:], y[:] = np.arange(100) + round_, 0
        worker.replay(captured, given((x, IN), (y, INOUT)))
        np.testing.assert_array_equal(y, 40 * (x + 1) + sum(range(40)))


def test_retries_pins_groups_dependencies_and_many_are_replayed(make: Any) -> None:
    worker = make(num_sub_workers=2)
    handle, twice = worker.register(touch), worker.register(touch_after_a_failure)
    counts, tries = worker.shared_array((8, 4), "int64"), worker.shared_array((1,), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        counts, tries = args.tensor(0), args.tensor(1)
        for _ in range(2):
            orch.submit_sub_many(handle, given((counts, INOUT)))
        orch.submit_sub_group(
            handle, [given((counts[0], INOUT)), given((counts[1], INOUT))], workers=[1, 0]
        )
        first = orch.submit_sub(handle, given((counts[2], INOUT)), worker=1)
        last = given((counts[3], INOUT))
        last.add_dep(first)
        orch.submit_sub(handle, last, worker=0, hint=True)
        args = given((counts[4], INOUT), (tries, TensorArgType.NO_DEP))
        orch.submit_sub(twice, args, retries=2, timeout_s=60)

    def args() -> TaskArgs:
        return given((counts, INOUT), (tries, INOUT))

    captured = worker.capture(graph, args())
    assert captured.task_count == 20
    for _ in range(2):
        counts[:], tries[0] = 0, 1
        worker.replay(captured, args())
        assert counts[:, 0].tolist() == [3, 3, 3, 3, 3, 2, 2, 2]


def test_a_failure_names_the_line_in_the_captured_function(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, TaskArgs())  # without the required tensor

    captured = worker.capture(graph)
    line = graph.__code__.co_firstlineno + 1
    with pytest.raises(TaskFailedError, match=rf"test_captured_graphs\.py.*{line}"):
        worker.replay(captured)
    with pytest.raises(TaskFailedError):
        worker.replay(captured)


def refusals(worker: Any, handle: Any, row: Any) -> dict[str, Any]:
    """Return functions that cannot be captured; each key is the message of the refusal."""
    earlier: list[Any] = []

    def of_a_run(orch: Any, args: Any, config: Any) -> None:
        earlier.append(orch.submit_sub(handle, given((row, INOUT))))
        earlier.append(orch.alloc((4,), "int64"))

    worker.run(of_a_run)
    task, buffer = earlier

    def after_a_run(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((row, INOUT)))
        orch.submit_sub(handle, given((row, INOUT)), after=[task])

    def submit(orch: Any) -> Any:
        return orch.submit_sub(handle, given((row, INOUT)))

    return {
        "cannot wait for a task": lambda orch, args, cfg: submit(orch).wait(),
        "has not run": lambda orch, args, cfg: submit(orch).result(),
        "belongs to a captured graph and": lambda orch, args, cfg: submit(orch).done(),
        "a run or session was started inside a capture": lambda orch, args, cfg: (
            worker.session().__enter__()
        ),
        "a run or session was started": lambda orch, args, cfg: worker.run(lambda *_: None),
        "a capture was started inside a capture": lambda orch, args, cfg: worker.capture(
            lambda *_: None
        ),
        "belongs to a run, not to the graph": after_a_run,
        "belongs to an earlier run": lambda orch, args, cfg: orch.submit_sub(
            handle, given((buffer, INOUT))
        ),
        "no memory|shared": lambda orch, args, cfg: orch.alloc((4,), "int64").numpy(),
        "1 scopes open": lambda orch, args, cfg: orch.scope().__enter__(),
        "outside of a run|scope is open": lambda orch, args, cfg: orch.scope().__exit__(),
    }


# Invariant: A capture runs no task. A call that it cannot record raises an error at once.
def test_calls_that_cannot_be_captured_are_refused(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch)
    row = worker.shared_array((4,), "int64")
    for message, graph in refusals(worker, handle, row).items():
        with pytest.raises(PtoError, match=message):
            worker.capture(graph)
    before = row.copy()
    captured = worker.capture(lambda orch, args, cfg: orch.submit_sub(handle, given((row, INOUT))))
    np.testing.assert_array_equal(row, before)
    worker.replay(captured)
    np.testing.assert_array_equal(row, before + 1)


def test_arguments_that_do_not_fit_are_refused_at_the_call(make: Any) -> None:
    worker, other = make(num_sub_workers=1), make(num_sub_workers=1)
    handle = worker.register(touch)
    row, matrix = worker.shared_array((4,), "int64"), worker.shared_array((2, 4), "int64")
    kept: list[Any] = []

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((args.tensors[0], INOUT)))
        kept.append(orch.alloc((4,), "int64"))

    captured = worker.capture(graph, given((row, INOUT), scalars=(3,)))
    for message, args in (
        ("captured with 1 tensors and 1 scalars", None),
        ("capture it again for other shapes", given((matrix, INOUT), scalars=(3,))),
        ("differs from the captured value", given((row, INOUT), scalars=(4,))),
        ("shared_array", given((np.zeros(4, "int64"), INOUT), scalars=(3,))),
        ("is in a heap ring", given((kept[0], INOUT), scalars=(3,))),
        ("pass a tuple of arrays .* or a TaskArgs", row),
    ):
        with pytest.raises(UsageError, match=message):
            worker.replay(captured, args)
    with pytest.raises(UsageError, match="overlap"):
        worker.capture(graph, given((matrix[0], INOUT), (matrix, INOUT)))
    with pytest.raises(UsageError, match="has no memory"):
        worker.capture(graph, given((ContinuousTensor.from_pointer(0, (4,), "int64"), OUT)))
    with pytest.raises(UsageError, match="another Worker"):
        other.replay(captured, given((row, INOUT), scalars=(3,)))
    with pytest.raises(UsageError, match=r"pass the result of Worker\.capture"):
        worker.replay(graph, given((row, INOUT)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="allocated by the capture"):
        worker.run(lambda orch, args, cfg: orch.submit_sub(handle, given((kept[0], INOUT))))
    with pytest.raises(UsageError, match="inside a run"):
        worker.run(lambda orch, args, cfg: worker.replay(captured, None))
    assert not row.any()
    worker.unregister(handle)
    with pytest.raises(UsageError, match="was unregistered"):
        worker.replay(captured, given((row, INOUT), scalars=(3,)))
    worker.close()
    with pytest.raises(WorkerClosedError):
        worker.replay(captured)


def test_a_captured_graph_keeps_the_memory_that_it_names(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle, total = worker.register(touch), worker.register(accumulate)
    result = worker.shared_array((4,), "int64")

    def captured() -> Any:
        hidden = worker.shared_array((4,), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_sub(handle, given((hidden, INOUT)))
            orch.submit_sub(total, given((hidden, IN), (args.tensors[0], INOUT)))

        return worker.capture(graph, given((result, INOUT)))

    graph = captured()
    others = [worker.shared_array((4,), "int64") for _ in range(8)]
    for _ in range(2):
        worker.replay(graph, given((result, INOUT)))
    assert result.tolist() == [3] * 4
    assert not any(other.any() for other in others)


def test_nested_workers_replay(make: Any) -> None:
    host = make(level=3, num_sub_workers=1)
    inner = host.register(touch)
    top = make(level=4)
    top.add_worker(host)

    def below(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(inner, given((args.tensors[0], INOUT)))

    handle = top.register(below)
    row = top.shared_array((4,), "int64")
    graph = top.capture(
        lambda orch, args, cfg: [
            orch.submit_next_level(handle, given((args.tensors[0], INOUT)), worker=0)
            for _ in range(5)
        ],
        given((row, INOUT)),
    )
    for _ in range(2):
        top.replay(graph, given((row, INOUT)))
    assert row.tolist() == [10] * 4


def test_chips_replay(make: Any) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    chip = worker.register(ChipCallable(shift_on_chip))
    first, second = (worker.shared_array((64,), "int64") for _ in range(2))

    def graph(orch: Any, args: Any, config: Any) -> None:
        for by in (1, 2):
            one = given((args.tensors[0], INOUT), scalars=(by,))
            orch.submit_next_level(chip, one, CallConfig(block_dim=by))

    captured = worker.capture(graph, given((first, INOUT)))
    for array in (first, second, second):
        worker.replay(captured, given((array, INOUT)))
    assert [int(array[5]) for array in (first, second)] == [3, 6]
    with pytest.raises(UsageError, match="malloc was called during a capture"):
        worker.capture(lambda orch, args, cfg: worker.malloc(64))
