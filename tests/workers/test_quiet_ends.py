"""No Python code runs when an object of a Worker is destroyed.

Otherwise Ctrl-C could be lost there: CPython prints the exception of a weak-reference callback or a
``__del__``, and continues.
"""

# Invariant of this file: Destruction of a Worker's objects runs no Python code, and its weak
# references have no callbacks: an exception of a signal handler there would be lost.

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pto_core import Out, Worker, task
from pto_core.kernels.callables import function_digest


@task
def write(value: int, out: Out) -> None:
    out[:] = value


def calls_of(act: Callable[[], object]) -> list[tuple[CodeType, CodeType]]:
    """Call ``act``; return each Python function that was called meanwhile, with its caller."""
    found: list[tuple[CodeType, CodeType]] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_back is not None:
            found.append((frame.f_code, frame.f_back.f_code))

    gc.collect()
    gc.disable()  # ignore objects that earlier tests left
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def is_callback(code: CodeType, caller: CodeType) -> bool:
    """Return whether a function is a ``__del__`` or weak-reference callback of an object."""
    if Path(code.co_filename).name not in ("weakref.py", "_weakrefset.py"):
        # The destructor of zipfile is ignored: importlib.metadata tries each missing entry of
        # sys.path as a zip file.
        return code.co_name == "__del__" and Path(code.co_filename).name != "zipfile.py"
    if code.co_name == "__call__":
        return Path(caller.co_filename).name != "contextlib.py"
    return code.co_name in ("remove", "_remove")


def whole_life() -> None:
    with Worker(3, num_sub_workers=1, heap_ring_size=1 << 24) as worker:
        out = worker.shared_array(8)
        with worker.session() as s:
            s.submit(write, 3, out)
        assert (out == 3).all()


def test_no_python_runs_while_a_worker_is_closed_and_destroyed() -> None:
    whole_life()  # import all modules before the calls are recorded
    calls = calls_of(whole_life)
    assert [code for code, caller in calls if is_callback(code, caller)] == []


def life_of_closures() -> None:
    with Worker(3, num_sub_workers=1) as worker:
        for _ in range(2):
            with worker.session() as s:
                values = [s.submit(task(lambda number=number: number)) for number in range(3)]
                assert [value.result() for value in values] == [0, 1, 2]


def test_no_python_runs_when_the_callable_of_a_submit_is_destroyed() -> None:
    life_of_closures()  # import all modules before the calls are recorded
    calls = calls_of(life_of_closures)
    assert [code for code, caller in calls if is_callback(code, caller)] == []


def test_no_python_runs_when_an_array_is_destroyed(make) -> None:
    held: list[Any] = [make(num_sub_workers=1).shared_array(8)]
    assert len(calls_of(held.clear)) == 0


def test_no_python_runs_when_a_registered_function_is_destroyed() -> None:
    kept = "closed over"
    held: list[Any] = [lambda: kept]
    function_digest(held[0])
    assert len(calls_of(held.clear)) == 0


def test_few_programs_of_destroyed_functions_are_kept() -> None:
    before = weak_references()
    for number in range(500):
        function_digest(lambda number=[number]: number)
    assert weak_references() - before <= 2 * 64 + 1


def weak_references() -> int:
    gc.collect()
    return sum(type(each) is weakref.ref for each in gc.get_objects())


def test_a_closed_worker_returns_its_memory_without_the_garbage_collector() -> None:
    """A program that creates many Workers would otherwise have the heaps of several at a time."""
    gc.collect()
    before = memory_of_workers()
    gc.disable()
    try:
        whole_life()
        assert memory_of_workers() <= before
    finally:
        gc.enable()


def memory_of_workers() -> int:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum("pto-worker" in line for line in maps)
