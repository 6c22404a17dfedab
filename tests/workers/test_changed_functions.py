"""Functions of a notebook or of the main module: edits.

The main module of these tests is a module of its own, in which each test executes cells.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core import task

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


class Model:
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


@task
def work(x, *, step=helper):
    inner = lambda: helper(x)
    large = LARGE if LARGE is None else LARGE.sum()
    results = [inner(), sum(SETTINGS["rates"]), WEIGHTS.sum(), NOTHING, large]
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


def test_a_function_that_a_later_cell_defines_is_found(make, cell: Cell) -> None:
    worker = make(num_sub_workers=1)
    main = cell("from pto_core import task\n@task\ndef work(x): return later(x)")
    with worker.session() as s:
        assert isinstance(s.submit(main.work, 1).exception(), NameError)
        cell("def later(x): return x + 1")
        assert s.submit(main.work, 1).result() == 2


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
    with worker.session() as s:
        assert s.submit(main.count).result() == 4


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


@task
def until(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.001)
