"""Functions of a notebook or of the main module: edits, release, large ones, and tables.

The main module of these tests is a module of its own, in which each test executes cells.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import sys
import time
import types
import weakref
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pto_core import Task, Worker, task
from pto_core.errors import CapacityError

Cell = Callable[[str], types.ModuleType]

CELL = """
import functools
import numpy as np
from pto_core import task

FACTOR = 2
SETTINGS = {"rates": [1, 2]}
WEIGHTS = np.zeros(3)
NOTHING = None
LARGE = np.zeros(10_000)


class Base:
    rate = 1


class Model(Base):
    bias = 1

    def shifted(self, x):
        return x + self.bias


MODEL = Model()


def helper(x):
    return x * FACTOR


def partial_helper(x, y):
    return x + y


STEP = functools.partial(partial_helper, 1)
STEPS = [helper]
OPERATIONS = {"scaled": lambda x: x * sum(RATES)}  # cannot be pickled
RATES = [2]
OFFSET = 1


def raised(x, by=1, *, times=1):
    return x + by * times


@task
def work(x, *, step=helper):
    class Inner:
        offset = OFFSET
        twice = 2 * offset

    inner = lambda: helper(x)
    large = LARGE if LARGE is None else LARGE.sum()
    results = [inner(), sum(SETTINGS["rates"]), WEIGHTS.sum(), NOTHING, large]
    results += [MODEL.rate, OPERATIONS["scaled"](x), Inner.twice, raised(x)]
    return [*map(str, results), MODEL.shifted(x), STEP(x), STEPS[0](x), step(x)]
"""

EDITS = {
    "a number": "FACTOR = 3",
    "a helper": "def helper(x): return -x",
    "a dictionary in place": "SETTINGS['rates'].append(3)",
    "an array in place": "WEIGHTS[1] = 5",
    "None": "NOTHING = 5",
    "an array that becomes another": "LARGE = np.ones(10_000)",
    "a large value that becomes None": "LARGE = None",
    "an object in place": "MODEL.bias = 8",
    "an attribute of a class": "del MODEL.bias\nModel.bias = 4",
    "a method": "Model.shifted = lambda self, x: 100",
    "an attribute of a base class": "Base.rate = 5",
    "an attribute that hides one of a base class": "Model.rate = 7",
    "a variable of a lambda in a dictionary": "RATES[0] = 3",
    "a variable of the body of a class": "OFFSET = 2",
    "the defaults of a function": "raised.__defaults__ = (4,)",
    "a keyword default in place": "raised.__kwdefaults__['times'] = 2",
    "the code of a function": "raised.__code__ = (lambda x, by, *, times: x - by).__code__",
    "a helper of a partial": "def partial_helper(x, y): return 7\nSTEP = functools.partial("
    "partial_helper, 1)",
}


@pytest.fixture
def cell(monkeypatch) -> Cell:
    """Execute the source of a cell in the main module."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def execute(source: str) -> types.ModuleType:
        exec(source, main.__dict__)
        return main

    return execute


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("is_first", [True, False], ids=["cell first", "Worker first"])
def test_the_next_submit_has_each_edit(make, cell: Cell, start_method, is_first) -> None:
    if is_first:
        cell(CELL)
    worker = make(num_sub_workers=1, start_method=start_method)
    worker.init()
    main = cell(CELL) if not is_first else cell("")
    with worker.session() as s:
        assert s.submit(main.work, 5).result() == main.work(5)
        for edit in EDITS.values():
            before = main.work(5)
            cell(edit)
            assert main.work(5) != before, edit
            assert s.submit(main.work, 5).result() == main.work(5), edit
            assert s.submit_group(main.work, [[5]]).result() == [main.work(5)], edit


@pytest.mark.parametrize("edit", ["FACTOR = 3", "def helper(x): return -x", "Model.bias = 5"])
def test_the_first_submit_has_the_edits_since_the_start(make, cell: Cell, edit) -> None:
    """A forked child also has the functions, with the values that they had at its start."""
    main = cell(CELL)
    cell("def plain(x): return helper(x), MODEL.shifted(x)")
    worker = make(num_sub_workers=1)
    assert worker.map(main.plain, [1]) == [main.plain(1)]
    cell(edit)
    assert worker.map(main.plain, [1]) == [main.plain(1)]
    with worker.session() as s:
        assert s.submit(main.work, 5).result() == main.work(5)


CLASSES = """
from pto_core import Retries, attempt, task

SCALE = 2
STATE = {}


class Point:
    kind = 1


class MyError(Exception):
    pass


def fill():
    STATE["scale"] = SCALE


@task
def is_point(x):
    fill()
    return isinstance(x, Point), STATE["scale"]


@task(retries=Retries(2, on=MyError))
def fails_once():
    if attempt() < 2:
        raise MyError(SCALE)
    return SCALE
"""


@pytest.mark.parametrize("edit", ["SCALE = 3", "SCALE = 3\nPoint.kind = 2\nMyError.kind = 2"])
def test_a_function_that_is_sent_again_has_the_classes_of_its_arguments(
    make, cell: Cell, edit
) -> None:
    """A class that did not change is the inherited one, and its functions share their variables."""
    main = cell(CLASSES)
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        assert s.submit(main.is_point, main.Point()).result() == (True, 2)
        cell(edit)
        assert s.submit(main.is_point, main.Point()).result() == (True, 3)
        assert s.submit(main.fails_once).result() == 3
        cell("in_a_later_cell = task(lambda x: isinstance(x, Point))")
        assert s.submit(main.in_a_later_cell, main.Point()).result()


def test_a_large_value_that_changes_in_place_is_the_old_one(make, cell: Cell) -> None:
    """Comparing it would cost more than most tasks."""
    main = cell(CELL)
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        before = s.submit(main.work, 5).result()
        cell("LARGE[:] = 1")
        assert s.submit(main.work, 5).result() == before
        cell("FACTOR = 4")
        assert s.submit(main.work, 5).result() == main.work(5) != before


class Counted:
    pickles = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        Counted.pickles += 1
        return Counted, ()


def test_a_submit_pickles_the_elements_of_a_list_once(make, cell: Cell) -> None:
    worker = make(num_sub_workers=1)
    main = cell("from pto_core import task\nITEMS = []\nwork = task(lambda: len(ITEMS))")
    main.ITEMS += [Counted() for _ in range(300)]
    with worker.session() as s:
        assert s.submit(main.work).result() == 300
        before = Counted.pickles
        assert s.submit(main.work).result() == 300
        assert Counted.pickles == before + 300


@pytest.mark.parametrize(("place", "result"), [(999, 2), (1000, 1)])
def test_the_first_1000_elements_of_a_list_are_compared(make, cell: Cell, place, result) -> None:
    worker = make(num_sub_workers=1)
    main = cell("from pto_core import task\nSTEPS = []\nwork = task(lambda n: STEPS[n]())")
    cell(f"SIZE = 1\nSTEPS += [0] * {place} + [lambda: SIZE]")
    with worker.session() as s:
        assert s.submit(main.work, place).result() == 1
        cell("SIZE = 2")
        assert s.submit(main.work, place).result() == result


def test_a_function_that_a_later_cell_defines_is_found(make, cell: Cell) -> None:
    worker = make(num_sub_workers=1)
    main = cell("from pto_core import task\n@task\ndef work(x): return later(x)")
    with worker.session() as s:
        assert isinstance(s.submit(main.work, 1).exception(), NameError)
        cell("def later(x): return x + 1")
        assert s.submit(main.work, 1).result() == 2


def test_a_cached_helper_may_change(make, cell: Cell) -> None:
    """Without a change, children keep its cache."""
    cached = (
        "import functools\n"
        "@functools.lru_cache(maxsize=3)\n"
        "def cached(n): return SIZE if n == 0 else cached(n - 1)"
    )
    cell(f"from pto_core import task\nSIZE = 1\n{cached}")
    main = cell("work = task(lambda: (cached(1), cached.cache_info().currsize))")
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        assert s.submit(main.work).result() == (1, 2)
        cell("SIZE = 2")
        assert s.submit(main.work).result() == (2, 2)
        cell("@functools.lru_cache(maxsize=1)\ndef cached(n): return 3")
        assert [s.submit(main.work).result() for _ in range(2)] == [(3, 1), (3, 1)]


def test_a_closure_variable_may_change(make) -> None:
    worker = make(num_sub_workers=1)
    value = 1

    @task
    def read() -> int:
        return value

    with worker.session() as s:
        assert s.submit(read).result() == 1
        value = 2
        assert s.submit(read).result() == 2


def test_a_function_that_did_not_change_is_not_sent_again(make, cell: Cell) -> None:
    """The child keeps what the function has stored in its global variables."""
    worker = make(num_sub_workers=1)
    worker.init()
    main = cell(
        "from pto_core import task\n"
        "found = 0\n"
        "def helper(): return 1\n"
        "@task\ndef count():\n"
        "    global found\n"
        "    found += helper()\n"
        "    return found\n"
    )
    with worker.session() as s:
        assert [s.submit(main.count).result() for _ in range(3)] == [1, 2, 3]
    registered = worker._node.registry.current(main.count)
    assert registered is not None
    with worker.session() as s:
        assert s.submit(main.count).result() == 4
    assert worker._node.registry.current(main.count) is registered


def test_a_change_behind_an_object_that_raises_is_sent(make, cell: Cell) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    main = cell(
        "from pto_core import task\n"
        "class Unreadable(dict):\n"
        "    def values(self): raise ValueError\n"
        "SIZE = 1\n"
        "def step(): return SIZE\n"
        "steps = Unreadable(first=step)\n"
        "work = task(lambda: steps['first']())\n"
    )
    with worker.session() as s:
        assert s.submit(main.work).result() == 1
        cell("SIZE = 2")
        assert s.submit(main.work).result() == 2


def test_tasks_that_wait_run_the_function_of_their_submit(make, cell: Cell, tmp_path) -> None:
    worker = make(num_sub_workers=1, task_timeout_s=30)
    main = cell("from pto_core import task\nvalue = 0\n@task\ndef read(): return value")
    with worker.session() as s:
        s.submit(until, str(tmp_path / "mark"))
        handles = []
        for main.value in range(20):  # type: ignore[attr-defined]
            handles.append(s.submit(main.read))
        (tmp_path / "mark").touch()
        assert [handle.result() for handle in handles] == list(range(20))


# ---- the release of callables ----


@task
def until(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.001)


def closure(number: int, nbytes: int) -> Task[[], int]:
    data = bytes([number % 256]) * nbytes

    @task
    def first() -> int:
        return data[0]

    return first


def of_itself() -> Task[[], int]:
    @task
    def work() -> int:
        return int(work is not None)

    return work


def own_bytes(worker: Worker) -> list[int]:
    processes = [psutil.Process(), *psutil.Process().children()]
    return [process.memory_full_info().uss for process in processes]


@pytest.mark.parametrize("nbytes", [200_000, 1_000_000])
@pytest.mark.parametrize("is_in_one", [True, False], ids=["one session", "a session each"])
def test_closures_that_are_no_longer_used_are_released(make, nbytes, is_in_one) -> None:
    worker = make(num_sub_workers=2)
    count = 40_000_000 // nbytes

    def submit(numbers: range) -> None:
        for number in numbers:
            with worker.session() as s:
                assert s.submit(closure(number, nbytes)).result() == number % 256

    def submit_in_one(numbers: range) -> None:
        with worker.session() as s:
            for number in numbers:
                assert s.submit(closure(number, nbytes)).result() == number % 256

    run = submit_in_one if is_in_one else submit
    run(range(10))
    gc.collect()
    before = own_bytes(worker)
    run(range(count))
    gc.collect()
    after = own_bytes(worker)
    assert max(b - a for a, b in zip(before, after, strict=True)) < 15_000_000


def test_closures_that_a_busy_child_has_not_received_are_released(make, tmp_path) -> None:
    worker = make(num_sub_workers=2, task_timeout_s=30)
    values = worker.init()._node.children.memory.values.mapping
    with worker.session() as s:
        busy = s.submit(until, str(tmp_path / "mark"), worker=0)
        for number in range(10):
            assert s.submit(closure(number, 900_000), worker=1).result() == number
        assert values.resident_bytes > 9_000_000
        (tmp_path / "mark").touch()
        busy.result()
        for number in (11, 12):
            assert s.submit(closure(number, 900_000), worker=0).result() == number
        assert values.resident_bytes < 3_000_000


def test_a_submitted_task_keeps_its_function_until_its_end(make, tmp_path) -> None:
    worker = make(num_sub_workers=1, task_timeout_s=30)
    with worker.session() as s:
        s.submit(until, str(tmp_path / "mark"))
        handles = [s.submit(closure(number, 1000)) for number in range(30)]
        gc.collect()
        (tmp_path / "mark").touch()
        assert [handle.result() for handle in handles] == list(range(30))


def test_a_handle_does_not_keep_the_function(make) -> None:
    worker = make(num_sub_workers=1)
    work = of_itself()
    known = weakref.ref(work)
    with worker.session() as s:
        handle = s.submit(work)
        assert handle.result() == 1
    del work
    gc.collect()
    assert known() is None
    assert handle.result() == 1


def test_a_task_at_the_address_of_an_old_one_is_another_task(make) -> None:
    worker = make(num_sub_workers=1)
    addresses = set()
    with worker.session() as s:
        for number in range(50):
            work = task(lambda number=number: number)
            addresses.add(id(work))
            assert s.submit(work).result() == number
            del work
    assert len(addresses) < 50


def test_a_restarted_child_gets_the_functions_of_waiting_tasks(make, tmp_path) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart", task_timeout_s=30)
    mark = tmp_path / "mark"

    def dies() -> int:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 7

    with worker.session() as s:
        first = s.submit(task(dies), retries=1)
        handles = [s.submit(closure(number, 300_000)) for number in range(5)]
        gc.collect()
        assert first.result() == 7
        assert [handle.result() for handle in handles] == list(range(5))


def test_a_restarted_child_has_the_present_state_of_the_program(make, cell: Cell, tmp_path) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart", task_timeout_s=30)
    main = cell("from pto_core import task\nSIZE = 1\nwork = task(lambda: SIZE)")
    first, second = tmp_path / "first", tmp_path / "second"

    def dies() -> None:
        if not second.exists():
            second.touch()
            until(str(first))
            os.kill(os.getpid(), signal.SIGKILL)

    with worker.session() as s:
        s.submit(task(dies), retries=1)
        waiting = s.submit(main.work)
        until(str(second))
        cell("SIZE = 2")
        first.touch()
        assert waiting.result() == 2


def test_a_registered_task_is_not_released(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(closure(3, 1000))
    gc.collect()
    with worker.session() as s:
        assert s.submit(handle).result() == 3


# ---- large functions ----


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_function_may_be_larger_than_the_queue_of_a_child(make, tmp_path, start_method) -> None:
    worker = make(
        num_sub_workers=2, child_queue_bytes=1 << 16, task_timeout_s=30, start_method=start_method
    )
    with worker.session() as s:
        s.submit(until, str(tmp_path / "mark"), worker=0)  # this child receives the code later
        work = closure(5, 3_000_000)
        idle = s.submit(work, worker=1)
        busy = s.submit(work, worker=0)
        assert idle.result() == 5
        (tmp_path / "mark").touch()
        assert busy.result() == 5


def test_a_function_for_which_memory_is_missing_is_named(make) -> None:
    worker = make(num_sub_workers=1, shared_memory_limit=1 << 25)
    name = f"{inspect.unwrap(closure).__name__}.<locals>.first"
    with worker.session() as s:
        with pytest.raises(CapacityError, match=f"{name} cannot be sent to the children with"):
            s.submit(closure(5, 64_000_000))
        assert s.submit(closure(6, 1000)).result() == 6


# ---- what a notebook shows ----


def table(shown) -> dict[str, str]:
    return dict(re.findall("<th>(.*?)</th><td.*?>(.*?)</td>", shown._repr_html_()))


def test_a_notebook_shows_a_worker_a_session_and_handles(make, tmp_path) -> None:
    worker = make(num_sub_workers=1, task_timeout_s=30)
    assert table(worker) == {"state": "not started"}
    session = worker.session()
    assert table(session) == {"state": "not open"}
    with session as s:
        first, second = (s.submit(until, str(tmp_path / "mark")) for _ in range(2))
        failing = s.submit(task(lambda: 1 // 0))
        third = s.submit(until, first)
        assert table(third) == {"state": "waiting"}
        assert third.cancel()
        (tmp_path / "mark").touch()
        first.result(), second.result()
        assert isinstance(failing.exception(), ZeroDivisionError)
        states = [table(one)["state"] for one in (first, failing, third)]
        assert states == ["ended", "failed", "cancelled"]
        shown = failing._repr_html_()
        assert "&lt;lambda&gt;" in shown
        assert "<lambda>" not in shown
        assert table(s)["submitted"] == "4"
        array = worker.shared_array(16)
        assert table(worker)["L3/sub0"] == "alive"
        assert table(worker)["shared arrays"] == f"1 with {array.nbytes} bytes"
    worker.close()
    assert table(worker)["state"] == "closed"
