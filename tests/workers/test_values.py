"""Objects as arguments and results of tasks, and handles as arguments."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import itertools
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_core import In, InOut, Out, Scalar, TaskArgs, Worker, f32, i64, task
from pto_core.errors import (
    CapacityError,
    ChildDiedError,
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
)


@dataclasses.dataclass
class Model:
    name: str
    weights: np.ndarray


@dataclasses.dataclass(slots=True)
class Slotted:
    inside: Any


class Refusing:
    def __reduce__(self) -> Any:
        raise ValueError("never")


@task
def echo(*values: Any, **named: Any) -> Any:
    return values, named


@task
def count(text: str, *, least: int = 1) -> dict[str, int]:
    words = collections.Counter(text.split())
    return {word: number for word, number in words.items() if number >= least}


@task
def merge(parts: list[dict[str, int]]) -> collections.Counter[str]:
    return sum(map(collections.Counter, parts), collections.Counter())


@task
def predict(model: Model, x: In, scale: float = 1.0) -> Any:
    return model.weights @ x * scale


@task
def ramp(size: int) -> Any:
    return np.arange(size, dtype=np.float64)


@task
def ramp_later(size: int) -> Any:
    time.sleep(0.1)
    return np.arange(size, dtype=np.float64)


@task
def constant(size: int, value: float) -> Any:
    return np.full(size, float(value))


@task
def plus_one(values: Any) -> Any:
    return values + 1


@task
def value_or_none(value: Any) -> Any:
    return value or None


def traced(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@task
@traced
def fill_traced(number: float, out: Out) -> None:
    out[:] = number


@task
def fill_later(number: float, out: Out) -> None:
    time.sleep(0.1)
    out[:] = number


@task
def with_options(x: Any, retries: int = 0) -> Any:
    return x, retries


@task
def with_option_by_keyword(x: Any, *, retries: int) -> None: ...


@task
def count_up(out: Out) -> None:
    time.sleep(0.05)  # a task that does not wait for this one reads zeros
    out[...] = np.arange(out.size).reshape(out.shape)


@task
def describe(parts: Any) -> Any:
    return ([(one.tolist(), one.strides, one.flags.writeable) for one in parts],), {}


@task
def total(values: Any, more: float = 0) -> float:
    return float(np.sum(values)) + more


@task
def read_total(x: In) -> float:
    return float(x.sum())


@task
def fill(number: float, out: Out) -> None:
    out[:] = number


@task
def increment(x: InOut) -> None:
    x += 1


@task
def add(x: In, out: InOut) -> str:
    out += x
    return "added"


@task
def fail(number: int) -> float:
    return number / 0


@task
def nothing() -> None:
    pass


@task
def pid() -> int:
    return os.getpid()


@task(retries=3)
def die_once(marker: str) -> Any:
    """Write a large result; then die before its end is reported, but only the first time."""
    if not Path(marker).exists():
        from pto_core.worker import values

        original = values.store_result

        def store_and_die(*args: Any) -> None:
            original(*args)
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

        import pto_core.worker.tasks as tasks

        tasks.store_result = store_and_die
    return np.full(100_000, 7.0)


kept: list[Any] = []


@task
def keep(value: Any) -> None:
    kept.append(value)


@task
def keep_and_fail(value: Any) -> None:
    kept.append(value)
    raise ValueError("after that")


@task(retries=1)
def die_while_writing(marker: str) -> Any:
    """Die in the middle of the first write of a large result."""
    if not Path(marker).exists():
        from pto_core.worker import values

        def write(*args: Any) -> None:
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

        values.Content.write = write  # type: ignore[method-assign]
    return np.full(100_000, 7.0)


@task
def keep_in_a_cycle(value: Any) -> int:
    cycle = [value]
    cycle.append(cycle)
    return len(cycle)


@task
def write_into(value: Any) -> None:
    value[0] = 1


@pytest.fixture
def worker(make) -> Worker:
    return make(num_sub_workers=2)


OBJECTS = [
    None,
    "text",
    b"bytes",
    2**100,
    1j,
    [],
    {"a": [1, (2, {3})]},
    frozenset({1}),
    Path("x"),
    random.Random,
    len,
]


def test_any_object_goes_to_a_task_and_back(worker) -> None:
    with worker.session() as s:
        handles = [s.submit(echo, one, named=one) for one in OBJECTS]
        assert [handle.result() for handle in handles] == [
            ((one,), {"named": one}) for one in OBJECTS
        ]
        assert handles[1].result() is handles[1].result()


def test_objects_of_any_size(worker) -> None:
    with worker.session() as s:
        for size in (0, 1, 100, 900, 1000, 1024, 1 << 16, 3 << 20):
            data = random.Random(size).randbytes(size)
            array = np.frombuffer(data, np.uint8)
            ((text, found), _) = s.submit(echo, data, array).result()
            assert text == data
            np.testing.assert_array_equal(found, array)


ARRAYS = ["float32", "bool", "U3", "M8[s]", "i4,f8", "O", ml_dtypes.bfloat16]


def test_arrays_in_objects(worker) -> None:
    with worker.session() as s:
        for dtype, order in itertools.product(ARRAYS, ("C", "F")):
            array = np.asarray(np.arange(12).reshape(3, 4), order=order).astype(dtype)
            (((given, part),), _) = s.submit(echo, (array, array[:, ::2])).result()
            assert given.dtype == array.dtype
            assert (given == array).all()
            assert (part == array[:, ::2]).all()


def test_words_are_counted_by_a_pipeline(worker) -> None:
    with worker.session() as s:
        counts = [s.submit(count, f"a b {i} {i}", least=2) for i in range(20)]
        merged = s.submit(merge, counts)
        assert s.submit(total, s.submit(echo, 1), more=2).exception() is not None
        assert merged.result() == {str(i): 2 for i in range(20)}


def test_objects_arrays_and_numbers_are_mixed(worker) -> None:
    x, y = worker.shared_array(3, "float64"), worker.shared_array(3, "float64")
    x[:] = [1, 2, 3]
    model = Model("m", np.eye(3) * 2)
    with worker.session() as s:
        assert s.submit(predict, model, x, 3).result().tolist() == [6, 12, 18]
        assert s.submit(predict, scale=3, x=x, model=model).result().tolist() == [6, 12, 18]
        assert s.submit(predict, x=x, model=model).result().tolist() == [2, 4, 6]
        added = s.submit(add, x, y)
        assert added.result() == "added"
        assert y.tolist() == [1, 2, 3]
    assert predict(model, x).tolist() == [2, 4, 6]
    assert count("a a b", least=2) == {"a": 2}


def test_a_task_without_a_value_has_the_arrays_that_it_wrote(worker) -> None:
    x = worker.shared_array(3)
    with worker.session() as s:
        written = s.submit(fill, 2.5, x)
        assert s.submit(read_total, written).result() == 7.5
        assert s.submit(total, written).result() == 7.5
        assert (
            s.submit(echo, [written, {"x": written}]).result()[0][0][1]["x"].tolist() == [2.5] * 3
        )
        assert written.result() is x


def test_every_form_of_a_return_is_found(worker) -> None:
    x = worker.shared_array(3)
    with worker.session() as s:
        assert s.submit(value_or_none, [1]).result() == [1]
        assert s.submit(value_or_none, []).result() is None
        traced = s.submit(fill_traced, 2.5, x)  # may return a value, but returns None
        assert traced.result() is x
        assert s.submit(read_total, traced).result() == 7.5
        assert s.submit(echo, [traced]).result()[0][0][0].tolist() == [2.5] * 3
        assert s.submit(fill, 1, traced).result() is x
        group = s.submit_group(fill_traced, [(1, x[:1]), (2, x[1:])])
        assert [array.tolist() for array in group.result()] == [[1], [2, 2]]


def test_arrays_of_the_worker_inside_objects_are_inputs(worker) -> None:
    x = worker.shared_array(1000)
    with worker.session() as s:
        s.submit(fill_later, 2, x)
        both = s.submit(total, [x, x])
        s.submit(fill, 5, x)  # after the task that reads it
        assert both.result() == 4000
        ((found,), _) = s.submit(echo, {"x": x[10:20]}).result()
        assert found["x"].tolist() == [5] * 10
        assert not found["x"].flags.writeable
        grid = worker.shared_array((8, 6), "int64")
        parts = [grid[:, 1:3], grid.T[::-2], grid[5, ::2], grid[::-1, ::-1]]
        s.submit(count_up, grid)
        ((seen,), _) = s.submit(describe, parts).result()
        assert seen == [(part.tolist(), part.strides, False) for part in parts]
        ((private,), _) = s.submit(describe, [np.arange(6).reshape(2, 3)[:, :2]]).result()
        assert private[0][0] == [[0, 1], [3, 4]]


def test_a_copy_of_an_array_is_shared(worker) -> None:
    for given in (
        np.arange(6.0).reshape(2, 3).T,
        [[1, 2], [3, 4]],
        np.float16(2),
        np.zeros((0, 4)),
    ):
        shared = worker.array(given)
        assert shared.dtype == np.asarray(given).dtype
        np.testing.assert_array_equal(shared, given)
        with worker.session() as s:
            s.submit(increment, shared)
        np.testing.assert_array_equal(shared, np.asarray(given) + 1)
    with pytest.raises(UsageError, match=r"values is \['text'\], which is no array of numbers"):
        worker.array(["text"])


def test_numbers_of_other_types_keep_their_type(worker) -> None:
    numbers = [np.float32(0.1), np.int8(3), np.bool_(True), signal.SIGTERM, 2.5, True, 7]
    with worker.session() as s:
        (found, _) = s.submit(echo, *numbers).result()
    assert [(type(one), one) for one in found] == [(type(one), one) for one in numbers]


def test_a_handle_is_a_value_and_a_dependency(worker) -> None:
    with worker.session() as s:
        values = [s.submit(ramp, size) for size in (3, 1000, 100_000)]
        totals = [s.submit(total, one) for one in values]
        read = [s.submit(read_total, one) for one in values]
        assert [one.result() for one in totals] == [one.result().sum() for one in values]
        assert [one.result() for one in read] == [one.result().sum() for one in values]
        chain = s.submit(total, 1)
        for _ in range(100):
            chain = s.submit(total, chain, 1)
        assert chain.result() == 101


# Invariant: The memory of a value is used again only when no handle, array or task refers to it.
@pytest.mark.parametrize("size", [10, 10_000])
def test_values_live_as_long_as_their_handles_and_arrays(make, size: int) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        slow = s.submit(ramp_later, size)
        total_of_slow = s.submit(total, slow)
        del slow
        handle, other = s.submit(ramp, size), s.submit(ramp, size)
        found = other.result()
        del other
        for number in range(50):  # of the same sizes, with other contents
            assert s.submit(constant, size, number).result()[-1] == number
        expected = np.arange(size, dtype=np.float64)
        assert total_of_slow.result() == expected.sum()
        assert (handle.result() == expected).all()
        assert (found == expected).all()
    kept = handle.result()
    del handle
    worker.close()
    gc.collect()
    assert (found == expected).all()
    assert (kept == expected).all()
    assert not found.flags.writeable


def test_the_memory_of_a_closed_worker_has_only_values_in_use(make) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        large, small = s.submit(ramp, 1_000_000), s.submit(ramp, 10)
        found = small.result()
        assert large.result().size == 1_000_000
    del large, small
    mapping = worker._node.children.memory.values.mapping
    worker.close()
    assert mapping.resident_bytes < 1 << 17
    assert found.tolist() == list(range(10))


def test_memory_of_values_is_used_again(make) -> None:
    worker = make(num_sub_workers=2)
    data = bytes(100_000)
    resident = []
    for _ in range(4):
        with worker.session() as s:
            for _ in range(200):
                ((found,), _) = s.submit(echo, data).result()
                assert len(found) == len(data)
        resident.append(worker._node.children.memory.values.mapping.resident_bytes)
    assert worker.statistics()["value_bytes"] < 2 * 131072  # at most the last value
    assert resident[-1] <= resident[1] + 4 * 131072
    assert resident[-1] < 200 * len(data)


def test_a_large_result_uses_the_memory_of_a_dropped_one(make) -> None:
    worker = make(num_sub_workers=1)
    mapping = worker.init()._node.children.memory.values.mapping
    places = []
    with worker.session() as s:
        for size in (300_000, 300_000, 300_000, 300_000, 200_000):
            handle = s.submit(ramp, size)
            found = handle.result()
            assert (found == np.arange(size)).all()
            places.append(found.ctypes.data)
            del handle, found
            worker.statistics()  # frees the memory
            assert 8 * 300_000 <= mapping.resident_bytes < 8 * 300_000 + (1 << 17)
    assert len(set(places[:4])) == 1
    assert places[4] != places[0]


def test_values_that_do_not_fit_are_refused(make) -> None:
    worker = make(num_sub_workers=1, shared_memory_limit=1 << 24, heap_ring_size=1 << 20)
    with worker.session() as s:
        with pytest.raises(CapacityError, match="drop handles"):
            s.submit(echo, bytes(1 << 24))
        handles = [s.submit(ramp, 100_000) for _ in range(12)]  # there is space for ten
        errors = [handle.exception() for handle in handles]
        assert any(isinstance(error and error.__cause__, CapacityError) for error in errors)
        del handles
        gc.collect()
        assert s.submit(ramp, 100_000).result().size == 100_000


def test_memory_becomes_free_while_the_program_waits(make) -> None:
    worker = make(num_sub_workers=2, shared_memory_limit=1 << 26, heap_ring_size=1 << 20)
    with worker.session() as s:
        value = s.submit(ramp, 250_000)
        for _ in range(60):  # 2 MB each; a child has 16 MB
            value = s.submit(plus_one, value)
        assert value.result()[0] == 60
        chain = s.submit(ramp, 250_000)
        for _ in range(60):
            chain = s.submit(plus_one, chain)
    assert chain.result()[0] == 60
    del value, chain
    gc.collect()
    assert worker.statistics()["value_bytes"] == 0


def test_blocks_of_all_sizes_share_the_memory(make) -> None:
    worker = make(num_sub_workers=1, shared_memory_limit=1 << 24, heap_ring_size=1 << 20)
    with worker.session() as s:
        for size in (900_000, 100, 3_000_000, 70_000, 1_500_000, 1000, 7_000_000):
            ((data,), _) = s.submit(echo, bytes(size)).result() if size < 5e6 else ((b"",), 0)
            assert len(data) in (size, 0)
            assert len(s.submit(ramp, size // 10).result()) == size // 10
            handles = [s.submit(echo, bytes(size // 20)) for _ in range(8)]
            assert all(len(handle.result()[0][0]) == size // 20 for handle in handles)
            del handles, data


def test_a_failure_reaches_those_that_need_the_value(worker) -> None:
    with worker.session() as s:
        failed = s.submit(fail, 3)
        for argument in (failed, [failed], {"x": failed}):
            poisoned = s.submit(echo, argument)
            assert isinstance(poisoned.exception(), TaskPoisonedError)
        with pytest.raises(TaskFailedError):
            failed.result()
        done = s.submit(nothing)
        done.result()
    with worker.session() as s:
        assert s.submit(echo, done).result() == ((None,), {})
        later = s.submit(echo, failed)
        with pytest.raises(TaskFailedError, match="has no value"):
            later.result()


# Invariant: The failure of a task reaches no task that only uses the memory of its value again.
def test_a_failure_reaches_no_task_that_uses_the_memory_again(make) -> None:
    worker = make(num_sub_workers=1, shared_memory_limit=1 << 21, heap_ring_size=1 << 20)
    with worker.session() as s:
        for number in range(1000):
            assert s.submit(fail, number).exception() is not None
            data = bytes(random.Random(number).choice((1, 100, 1000, 20_000, 100_000)))
            assert s.submit(echo, data).result() == ((data,), {})


def test_a_repeated_task_has_one_value(make, tmp_path) -> None:
    worker = make(
        num_sub_workers=1, on_worker_death="restart", shared_memory_limit=6 << 20, heap_ring_size=1
    )
    with worker.session() as s:
        handle = s.submit(die_once, str(tmp_path / "died"))
        assert handle.result().sum() == 700_000
        assert s.submit(total, handle).result() == 700_000
        assert worker.statistics()["value_bytes"] < 2 * 800_000
        for _ in range(3):  # neither attempt has left a block behind
            marker = str(tmp_path / str(time.monotonic_ns()))
            assert s.submit(die_while_writing, marker).result().sum() == 700_000
    assert worker.statistics()["deaths"] == 4


# Invariant: A child that replaces a killed one overwrites no value of it.
def test_a_child_that_replaces_another_keeps_the_values_of_the_first(make) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        values = [s.submit(ramp, 10_000 + i) for i in range(10)]
        os.kill(s.submit(pid).result(), signal.SIGKILL)
        time.sleep(0.2)
        others = [s.submit(constant, 10_000 + i, -1) for i in range(10)]
        for handle in (s.submit(pid), *others):
            try:
                handle.result()
            except TaskFailedError as error:
                assert isinstance(error.__cause__, ChildDiedError)  # noqa: PT017
        for number, value in enumerate(values):
            assert (value.result() == np.arange(10_000 + number)).all()
        assert all((one.result() == -1).all() for one in others if one.exception() is None)


def test_private_arrays_are_copied_if_they_are_only_read(worker) -> None:
    private = np.arange(4.0)
    shared = worker.shared_array(4, "float64")
    with worker.session() as s:
        reads = s.submit(read_total, private)
        private[:] = 0
        assert reads.result() == 6
        assert s.submit(read_total, np.arange(8.0)[::2]).result() == 12
        group = s.submit_group(read_total, [[np.ones(2)], [np.ones(3)]])
        assert group.result() == [2, 3]
        with pytest.raises(UsageError, match="argument out of task function add") as caught:
            s.submit(add, np.ones(4), np.zeros(4))
        assert "Worker.shared_array" in str(caught.value)
        s.submit(add, np.ones(4), shared)
    assert shared.tolist() == [1] * 4


def test_a_kept_array_is_an_error(worker) -> None:
    with worker.session() as s:
        error = s.submit(keep, np.ones(3)).exception()
        assert isinstance(error.__cause__, UsageError)
        assert "keep kept an array" in str(error)
        assert s.submit(keep, "text").exception() is None
        failed = s.submit(keep_and_fail, np.ones(3)).exception()
        assert "keep_and_fail kept an array" in failed.remote_traceback
        failed = s.submit(fail, [np.ones(3)]).exception()
        assert "kept" not in failed.remote_traceback
        assert s.submit(keep_in_a_cycle, np.ones(3)).result() == 2
        error = s.submit(write_into, np.ones(3)).exception()
        assert isinstance(error.__cause__, ValueError)
        assert "annotate the parameter InOut to write into the array" in error.remote_traceback
        error = s.submit(refuse_file, "notes").exception()
        assert error.remote_traceback.endswith("ValueError: the file notes is read-only\n")


def test_objects_that_cannot_be_pickled_are_named(worker) -> None:
    lock = threading.Lock()
    with worker.session() as s:
        for submit, path in (
            (lambda: s.submit(count, lock), "text"),
            (lambda: s.submit(echo, 1, {"a": [0, lock]}), "args[1]['a'][1]"),
            (lambda: s.submit(echo, model=Model("m", lock)), "model.weights"),
            (lambda: s.submit(echo, {lock}), f"args[0] (element {lock!r})"),
            (lambda: s.submit(echo, Refusing()), "args[0]"),
        ):
            with pytest.raises(UsageError) as caught:
                submit()
            assert caught.value.name == path
            assert "cannot be pickled" in str(caught.value)
        error = s.submit(returns_a_lock).exception()
        assert "the value that returns_a_lock returned" in str(error)

    def helper() -> Any:
        return helper, model

    def uses_a_lock(x: Any, step: Any = len) -> Any:
        return helper()

    model = Model("m", lock)
    where = re.escape(f"model.weights of {__name__}.{helper.__qualname__}")
    for submit, message in (
        (lambda: worker.map(uses_a_lock, [1]), f"^{where} is <unlocked"),
        (lambda: worker.submit(task(uses_a_lock), 1), rf"cannot be serialised: .*\({where}\)"),
        (lambda: worker.map(functools.partial(len, x=lock), [1]), r"^function.keywords\['x'\] is"),
    ):
        with pytest.raises(UsageError, match=message):
            submit()


inherited: list[Worker] = []


@task
def submit_to_the_parent() -> None:
    inherited[0].submit(nothing)


def test_tasks_cannot_submit_tasks(worker, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "inherited", [worker])

    @task
    def submits() -> Any:
        return worker.submit(nothing).result()

    text = "cannot be passed to a task, because tasks cannot submit tasks"
    with worker.session() as s:
        for one in (worker, s, worker.executor()):
            with pytest.raises(UsageError, match=f"a {type(one).__name__} {text}"):
                s.submit(echo, [one])
        with pytest.raises(UsageError, match=rf"{text}.*\(worker of .*submits\)"):
            s.submit(submits)
        error = s.submit(submit_to_the_parent).exception()
        assert "a task cannot submit tasks: submit them in that process" in str(error)


@task
def returns_a_lock() -> Any:
    return threading.Lock()


@task
def refuse_file(name: str) -> None:
    raise ValueError(f"the file {name} is read-only")


@task
def with_keyword(x: Any, *, n: int) -> None: ...


def test_wrong_arguments_are_refused(worker) -> None:
    x = worker.shared_array(3)
    with worker.session() as s:
        value = s.submit(echo, 1)
        wrong: list[tuple[Any, str]] = [
            (lambda: s.submit(count, "a", most=1), "unexpected keyword argument 'most'"),
            (lambda: s.submit(count, "a", timeout=1), "'timeout'; did you mean 'timeout_s'?"),
            (lambda: s.submit(count), "takes 1 argument (text), got 0"),
            (lambda: s.submit(with_keyword, 1), "missing a required argument: 'n'"),
            (lambda: s.submit(with_keyword, 1, 2), "it is with_keyword(x: Any, *, n: int)"),
            (lambda: s.submit(total, x), "annotate the parameter In, Out or InOut"),
            (lambda: s.submit(total, s.empty(3)), "annotate the parameter In, Out or InOut"),
            (lambda: s.submit(fill, 1, value), "must be an array"),
            (lambda: s.submit(with_options, 1, retries=7), "a parameter of with_options"),
            (lambda: s.submit(with_options, 1, retries=7), "pass the argument by position"),
            (
                lambda: s.submit(with_option_by_keyword, 1, retries=7),
                "a parameter of with_option_by_keyword; rename the parameter",
            ),
            (lambda: pickle.dumps(value), "cannot be pickled"),
            (lambda: s.submit("text"), "not its name and not the result of a call"),
            (lambda: s.submit(value), "not the result of a call"),
            (lambda: s.submit(triple, 3), "put @task before its function, or pass task(function)"),
        ]
        for submit, message in wrong:
            with pytest.raises(UsageError) as caught:
                submit()
            assert message in str(caught.value)


def test_errors_name_the_argument_and_not_its_address(make) -> None:
    worker, other = make(num_sub_workers=1), make(num_sub_workers=1)
    worker.init()
    x, out, foreign = worker.shared_array(3), worker.shared_array(3), other.shared_array(3)
    read_only = worker.shared_array(3)
    read_only.flags.writeable = False
    with worker.session() as s:
        ended = s.empty(3)
    wrong: list[tuple[Any, str]] = [
        (lambda s: s.submit(add, foreign, out), "x of task function add is in shared memory"),
        (lambda s: s.submit(add, x, out=foreign), "out of task function add is in shared memory"),
        (lambda s: s.submit_group(add, [[x, out], [foreign, x]]), "x of task function add is in"),
        (lambda s: s.submit(add, ended, out), "x of task function add was made in a scope"),
        (lambda s: s.submit(add, x, read_only), "out of task function add is a read-only array"),
        (
            lambda s: s.submit(add, [1], out),
            r"x of .* add is \[1\] of .* np\.array\(values\)",
        ),
        (lambda s: s.submit(add, x), r"add takes 2 arguments \(x, out\), got 1"),
        (lambda s: s.submit(add, x, out=out, wrker=1), "options of submit are worker, hint"),
        (lambda s: s.submit(add, x, out=out, wrker=1), r"it is add\(x: In, out: InOut\)"),
    ]
    with worker.session() as s:
        for submit, message in wrong:
            with pytest.raises(UsageError, match=message) as caught:
                submit(s)
            assert "0x" not in str(caught.value)
        text = s.submit(echo, "text")
        error = s.submit(add, text, out).exception()
        assert "x of task function add must be an array" in str(error)
        error = s.submit(scaled, text, 2).exception()
        assert "x of task function scaled is (('text',), {}) of type tuple" in str(error)


def test_a_handle_of_another_worker_is_refused(make) -> None:
    one, other = make(num_sub_workers=1), make(num_sub_workers=1)
    with one.session() as s:
        value = s.submit(echo, 1)
    with other.session() as s, pytest.raises(UsageError, match="another Worker"):
        s.submit(echo, value)


def test_classes_and_functions_of_the_program_travel(make) -> None:
    """As in a notebook, where they are defined after the children have started."""
    worker = make(num_sub_workers=1)
    worker.init()
    scope: dict[str, Any] = {"__name__": "__main__", "task": task}
    exec(
        "class Pair:\n    def __init__(self, x): self.x = x\ndef twice(x): return 2 * x\n",
        scope,
    )
    with worker.session() as s:
        ((pair, twice), _) = s.submit(echo, scope["Pair"](3), scope["twice"]).result()
        assert pair.x == 3
        assert isinstance(pair, scope["Pair"])
        assert twice(4) == 8
        ((inner,), _) = s.submit(echo, lambda x: x + 1).result()
        assert inner(1) == 2


def triple(number: int) -> int:
    return 3 * number


def test_map_calls_a_function_with_each_item(worker) -> None:
    for chunksize, count in itertools.product(("auto", 1, 3, 1000), (0, 1, 100)):
        expected = [3 * i for i in range(count)]
        assert worker.map(triple, range(count), chunksize=chunksize) == expected
        assert worker.map(task(triple), iter(range(count)), chunksize=chunksize) == expected
        assert worker.map(lambda x: x, "abc", chunksize=chunksize) == ["a", "b", "c"]


def test_map_raises_the_error_of_the_first_call_that_fails(worker) -> None:
    with pytest.raises(TaskFailedError) as caught:
        worker.map(lambda x: 1 // x, [1, 0, 2], chunksize=1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    for wrong in ((3, [1]), (triple, [1], 0), (triple, [1], "x")):
        with pytest.raises(UsageError):
            worker.map(*wrong[:2], **dict(zip(["chunksize"], wrong[2:], strict=False)))


SCRIPT = """
import enum
import pickle
from dataclasses import dataclass

from pto_core import Worker, task


class Mode(enum.Enum):
    FAST = 1


@dataclass
class Point:
    x: int


@task
def same(mode, point):
    assert mode is Mode.FAST and isinstance(point, Point) and point == Point(3)
    return mode, point


@task
def call(function, *args):
    return function(*args)


if __name__ == "__main__":
    with Worker(3, num_sub_workers=1, start_method=METHOD) as worker, worker.session() as s:
        mode, point = s.submit(same, Mode.FAST, Point(3)).result()
        called = s.submit(call, same, Mode.FAST, Point(3)).result()
        print(mode is Mode.FAST, point == Point(3), called == (mode, point))
        print(pickle.loads(pickle.dumps(same)) is same)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_classes_of_a_script_are_the_same_in_its_children(tmp_path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True True True\nTrue\n", "")


def test_values_of_groups(worker) -> None:
    with worker.session() as s:
        group = s.submit_group(total, [[1, 2], [3, 4]])
        assert group.result() == [3, 7]
        assert s.submit(echo, group).result() == (([3.0, 7.0],), {})


def test_spawned_children_have_values_too(make) -> None:
    worker = make(num_sub_workers=2, start_method="spawn")
    with worker.session() as s:
        words = s.submit(count, "a b a")
        assert s.submit(merge, [words]).result() == {"a": 2, "b": 1}


def test_threads_submit_values_at_once(worker) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    failures = []
    with worker.session() as s:

        def work(number: int) -> None:
            chosen = random.Random(seed + number)
            for _ in range(200):
                data = chosen.randbytes(chosen.choice((1, 500, 1500, 20_000)))
                if s.submit(echo, s.submit(echo, data)).result() != (((((data,), {}),), {})):
                    failures.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_declared_number_may_be_a_handle(worker) -> None:
    with worker.session() as s:
        assert s.submit(scaled, s.submit(total, 4), 2).result() == 8


@task
def declared(x: f32, times: i64, *, most: float = 100) -> tuple[float, int, float]:
    return x, times, most


def test_short_names_declare_numbers_and_options_are_separate(worker) -> None:
    with worker.session() as s:
        handle = s.options(worker=0, timeout_s=20).submit(declared, 0.1, 2, most=3)
        assert handle.result() == (float(np.float32(0.1)), 2, 3)
        with pytest.raises(UsageError, match="times of task function declared is"):
            s.submit(declared, 1, 1.5)


@task
def scaled(x: Scalar, y: Scalar("int32")) -> float:  # type: ignore[valid-type]
    return x * y


def test_a_plain_function_receives_no_values(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(lambda args: None)
    with worker.session() as s, pytest.raises(UsageError, match="is not a scalar"):
        s.orchestrator.submit_sub(handle, _with("text"))


def _with(value: Any) -> TaskArgs:
    args = TaskArgs()
    args.add_scalar(value)
    return args


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    @task
    def into(self, x: In, out: Out) -> None:
        out[:] = x + self.number

    @classmethod
    @task
    def name(cls, text: str) -> str:
        return cls.__name__ + text

    def plus(self, number: int) -> int:
        return self.number + number


def test_builtin_functions_methods_and_partials_are_tasks(worker) -> None:
    for function in (len, sum, sorted, max, "".join):
        argument = ["c", "b"] if function != sum else [1, 2]
        assert worker.submit(task(function), argument).result() == function(argument)
    assert worker.submit(task(int), "4").result() == 4
    assert worker.submit(task(dict), a=[1]).result() == {"a": [1]}
    x, out, adder = worker.array([1.0, 2.0]), worker.array([0.0, 0.0]), Adder(3)
    assert worker.submit(adder.into, x, out).result().tolist() == [4, 5]
    assert worker.submit(Adder.into, Adder(1), x, out).result().tolist() == [2, 3]
    assert worker.submit(Adder.name, "!").result() == "Adder!"
    assert worker.submit(functools.partial(Adder(2).into, x), out=out).result().tolist() == [3, 4]
    assert worker.submit(task(adder.plus), 4).result() == 7
    bound = task(functools.partial(fill.function, 6))
    assert bound.name == "fill"
    assert worker.submit(bound, out).result().tolist() == [6, 6]
    assert worker.map(functools.partial(fill, 5), [x, out])[0].tolist() == [5, 5]
    adder.into(x, out)
    assert out.tolist() == [8, 8]
    with pytest.raises(UsageError, match="put @task above its other decorators"):
        worker.submit(traced(fill), 5, x)
    assert worker.submit(task(traced(fill)), 4, x).result().tolist() == [4, 4]


def test_masked_arrays_keep_their_mask_or_are_refused(worker) -> None:
    masked = np.ma.masked_greater(np.arange(4.0), 2)
    for refused in (lambda: worker.submit(read_total, masked), lambda: worker.array(masked)):
        with pytest.raises(UsageError, match=r"is a masked array, .* pass x.filled\(value\)"):
            refused()
    assert worker.submit(total, masked).result() == 3


def test_a_parameter_that_is_passed_by_keyword_only_cannot_be_written() -> None:
    with pytest.raises(UsageError, match=r"parameter out of .* is passed by keyword only"):

        @task
        def by_keyword(x: In, *, out: Out) -> None: ...
