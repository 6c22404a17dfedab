"""Callables that are registered while children run: either all children receive one, or none."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import psutil
import pytest
from task_arguments import given

from pto_core import ChipCallable, Out, TensorArgType, kernel, task
from pto_core.errors import ControlError, UsageError
from pto_core.worker.control import Control

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}


@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7


def on_chip(rt: Any, out: Out) -> None:
    rt.submit(fill, out)


def bump(args: Any) -> None:
    args.tensor(0)[:] += 1


def test_a_chip_callable_reaches_chips_that_run(make) -> None:
    worker = make(device_ids=[0, 1], **CHIPS)
    worker.init()
    chip = worker.register(ChipCallable(on_chip))
    rows = worker.shared_array((2, 8))

    def graph(orch, args, cfg) -> None:
        for number, row in enumerate(rows):
            orch.submit_next_level(chip, given((row, TensorArgType.OUTPUT)), cfg, worker=number)

    worker.run(graph)
    assert (rows == 7).all()


def leave_a_note(orch: Any, args: Any, config: Any) -> None:
    """A graph function that records its process and submits a task to a child of its Worker."""
    note = args.tensor(0)
    note[0] = os.getpid()
    with orch.scope():
        orch.submit_sub(leaf_of[0], given((note[1:], TensorArgType.INOUT)))


leaf_of: list[Any] = []
"""The handle that the host inherits; graph functions, registered later, find it by this name."""


def test_a_graph_function_reaches_hosts_that_run(make, monkeypatch) -> None:
    w4, w3 = make(level=4), make(num_sub_workers=1)
    monkeypatch.setitem(globals(), "leaf_of", [w3.register(bump)])
    w4.add_worker(w3)
    w4.init()
    (host,) = psutil.Process().children()
    for serialise in (False, True):
        graph = w4.register(leave_a_note, serialise=serialise)
        note = w4.shared_array((2,), "int64")
        w4.run(
            lambda orch, args, cfg, graph=graph, note=note: orch.submit_next_level(
                graph, given((note, TensorArgType.INOUT)), cfg
            )
        )
        assert note.tolist() == [host.pid, 1]


class Once:
    """An object that can be unpickled only by the first child that tries."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return once, (self._mark,)

    def __call__(self, args: Any) -> None: ...


def once(mark: Path) -> Any:
    mark.touch(exist_ok=False)
    return bump


def test_a_callable_that_one_child_refuses_is_removed_from_the_other(
    make, tmp_path, monkeypatch
) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    asked: list[tuple[str, Any, list[Any]]] = []
    ask_all = Control.ask_all

    def noting(
        self: Any, children: Any, operation: str, *arguments: Any, **options: Any
    ) -> list[Any]:
        replies = ask_all(self, children, operation, *arguments, **options)
        asked.append((operation, arguments[0], replies))
        return replies

    with monkeypatch.context() as patched:
        patched.setattr(Control, "ask_all", noting)
        with pytest.raises(
            ControlError, match=r"L3/sub[01] could not do 'callable': FileExistsError"
        ):
            worker.register(Once(tmp_path / "mark"), serialise=True)
    (_, digest, brought), (operation, forgotten, had) = asked
    assert [reply is True for reply in brought].count(True) == 1
    assert (operation, forgotten) == ("forget", digest)
    assert had == [reply is True for reply in brought]
    row = worker.shared_array(8)
    handle = worker.register(bump)
    worker.run(lambda orch, args, cfg: orch.submit_sub(handle, given((row, TensorArgType.INOUT))))
    assert (row == 1).all()


def test_functions_without_an_import_path_reach_children_that_run(make) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    rows = worker.shared_array((3, 4))

    def local(args: Any) -> None:
        args.tensor(0)[:] = helper() + 1

    @task
    def typed(out: Out) -> None:
        out[:] = helper() + 2

    with worker.session() as s:
        s.submit(typed, rows[1])
    value = 3
    by_code = worker.register(lambda args: args.tensor(0).fill(value), serialise=True)
    handles = [worker.register(local), by_code]
    for handle, row in zip(handles, (rows[0], rows[2]), strict=True):
        worker.run(
            lambda orch, _, cfg, handle=handle, row=row: orch.submit_sub(
                handle, given((row, TensorArgType.OUTPUT))
            )
        )
    assert rows[:, 0].tolist() == [1, 2, 3]


def helper() -> int:
    return 0


def test_a_chip_callable_without_an_import_path_reaches_chips_that_run(make) -> None:
    worker = make(device_ids=[0], **CHIPS)
    worker.init()
    value = 5

    @kernel(core="aiv")
    def fill_local(out: Out) -> None:
        out[:] = value

    def local(rt: Any, out: Out) -> None:
        rt.submit(fill_local, out)

    chip, row = worker.register(ChipCallable(local)), worker.shared_array(8)
    worker.run(
        lambda orch, _, cfg: orch.submit_next_level(chip, given((row, TensorArgType.OUTPUT)), cfg)
    )
    assert (row == 5).all()


VERSION = """
from pto_core import Out, kernel

VALUE = {value}


def shifted():
    return VALUE + {shift}


def write(args):
    args.tensor(0)[:] = shifted()


@kernel(core="aiv")
def fill(out: Out):
    out[:] = shifted()


def on_chip(rt, out: Out):
    rt.submit(fill, out)
"""


@pytest.fixture
def edited(tmp_path, monkeypatch) -> Any:
    """Return a function that writes a version of a module and imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"edited_{tmp_path.name}"

    def edit(value: int, shift: int = 0) -> Any:
        (tmp_path / f"{name}.py").write_text(VERSION.format(value=value, shift=shift))
        importlib.invalidate_caches()
        if name not in sys.modules:
            return importlib.import_module(name)
        return importlib.reload(sys.modules[name])

    yield edit
    sys.modules.pop(name, None)


@pytest.mark.parametrize("is_known", [True, False], ids=["registered before", "new"])
def test_a_function_that_was_edited_after_the_start_runs_as_it_is_now(
    make, edited, is_known: bool
) -> None:
    """The children have imported the first version; edits also change constants and helpers."""
    worker = make(num_sub_workers=2)
    row, handles = worker.shared_array(4), []
    module = edited(1)
    if is_known:
        handles.append((worker.register(module.write), 1))
    worker.init()
    for value, shift in ((2, 0), (2, 5), (3, 5)):
        edited(value, shift)
        handles.append((worker.register(module.write), value + shift))
        handles.append((worker.register(f"{module.__name__}:write"), value + shift))
    for handle, expected in handles:
        for _ in range(2):
            worker.run(
                lambda orch, _, cfg, handle=handle: orch.submit_sub_group(
                    handle, [given((part, TensorArgType.OUTPUT)) for part in (row[:2], row[2:])]
                )
            )
            assert (row == expected).all()


def test_a_chip_callable_that_was_edited_after_the_start_runs_as_it_is_now(make, edited) -> None:
    module = edited(1)
    worker = make(device_ids=[0], **CHIPS)
    row = worker.shared_array(8)
    worker.init()
    for value, shift in ((1, 0), (2, 0), (2, 5)):
        edited(value, shift)
        chip = worker.register(ChipCallable(module.on_chip))
        worker.run(
            lambda orch, _, cfg, chip=chip: orch.submit_next_level(
                chip, given((row, TensorArgType.OUTPUT)), cfg
            )
        )
        assert (row == value + shift).all()


def test_a_function_of_a_module_that_children_cannot_import_travels_by_code(
    make, monkeypatch
) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    module = types.ModuleType("only_in_the_parent")
    exec(VERSION.format(value=4, shift=0), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    handle, row = worker.register(module.write), worker.shared_array(4)
    worker.run(lambda orch, _, cfg: orch.submit_sub(handle, given((row, TensorArgType.OUTPUT))))
    assert (row == 4).all()


def test_a_function_that_children_can_import_shares_the_state_of_its_module(make) -> None:
    """The child imports the function's module, so the module need not be serialised."""
    worker = make(num_sub_workers=1)
    worker.init()
    handle, row = worker.register(count), worker.shared_array(4)
    for expected in (1, 2):
        worker.run(lambda orch, _, cfg: orch.submit_sub(handle, given((row, TensorArgType.OUTPUT))))
        assert (row == expected).all()


lock = threading.Lock()
calls: list[int] = []


def count(args: Any) -> None:
    with lock:
        calls.append(1)
        args.tensor(0)[:] = len(calls)


def test_a_function_that_cannot_travel_at_all_is_registered_nowhere(make, edited) -> None:
    module = edited(1)
    worker = make(num_sub_workers=1)
    worker.init()
    edited(2)
    module.shifted = threading.Lock()
    with pytest.raises(UsageError, match=r"write cannot be serialised: .*lock"):
        worker.register(module.write)
    module.shifted = lambda: 6
    handle, row = worker.register(module.write), worker.shared_array(4)
    worker.run(lambda orch, _, cfg: orch.submit_sub(handle, given((row, TensorArgType.OUTPUT))))
    assert (row == 6).all()


@task
def until(path: str):
    while not Path(path).exists():
        time.sleep(0.001)


@task
def touch(path: str):
    Path(path).touch()


def test_a_new_function_does_not_wait_for_a_child_that_runs_a_task(make, tmp_path) -> None:
    worker = make(level=3, num_sub_workers=2, task_timeout_s=30)
    with worker.session() as s:
        s.submit(until, str(tmp_path / "mark"))
        local = s.submit(task(lambda x: x + 1), 1)
        assert local.result() == 2
        s.submit(touch, str(tmp_path / "mark"))
    with worker.session() as s:  # both children have the functions now
        for child in range(2):
            s.submit(touch, str(tmp_path / f"{child}"), worker=child)


def test_a_busy_child_that_cannot_import_a_new_function_runs_its_code(
    make, tmp_path, monkeypatch
) -> None:
    worker = make(level=3, num_sub_workers=2, task_timeout_s=30)
    (tmp_path / "late_module.py").write_text("def where():\n    return 'here'\n")
    with worker.session() as s:
        s.submit(until, str(tmp_path / "mark"))
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module("late_module")
        (tmp_path / "late_module.py").unlink()
        handles = [s.submit(task(module.where), worker=child) for child in range(2)]
        (tmp_path / "mark").touch()
        assert [handle.result() for handle in handles] == ["here", "here"]
