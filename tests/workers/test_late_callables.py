"""Callables that are registered while children run: all who may run one have it, or nobody has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from task_arguments import given

from pto_core import ChipCallable, Out, TensorArgType, kernel
from pto_core.errors import ControlError
from pto_core.hierarchy.control import Control

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
    """A graph function: it has tasks run on the children of its Worker, and says where it is."""
    note = args.tensor(0)
    note[0] = os.getpid()
    with orch.scope():
        orch.submit_sub(leaf_of[0], given((note[1:], TensorArgType.INOUT)))


leaf_of: list[Any] = []
"""The handle that the hosts inherit: the graph function comes later, and finds it by name."""


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
    """Can be made again by the first child that tries, and by no other one."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return once, (self._mark,)

    def __call__(self, args: Any) -> None: ...


def once(mark: Path) -> Any:
    mark.touch(exist_ok=False)
    return bump


def test_what_one_of_two_children_refuses_the_other_one_forgets(
    make, tmp_path, monkeypatch
) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    asked: list[tuple[str, Any, list[Any]]] = []
    ask_all = Control.ask_all

    def noting(self: Any, children: Any, operation: str, *arguments: Any) -> list[Any]:
        replies = ask_all(self, children, operation, *arguments)
        asked.append((operation, arguments[0], replies))
        return replies

    with monkeypatch.context() as patched:
        patched.setattr(Control, "ask_all", noting)
        with pytest.raises(
            ControlError, match=r"L3/sub[01] could not do 'callable': FileExistsError"
        ):
            worker.register(Once(tmp_path / "mark"), serialise=True)
    (_, digest, brought), (operation, forgotten, had) = asked
    assert [reply is None for reply in brought].count(True) == 1
    assert (operation, forgotten) == ("forget", digest)
    assert had == [reply is None for reply in brought]
    assert worker._crew.control.ask_all(range(2), "forget", digest) == [False, False]
    row = worker.shared_array(8)
    handle = worker.register(bump)
    worker.run(lambda orch, args, cfg: orch.submit_sub(handle, given((row, TensorArgType.INOUT))))
    assert (row == 1).all()
