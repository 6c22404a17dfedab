"""Which tasks of two runs are matched and compared, from hashes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pto_core.errors import UsageError
from pto_insight.dumps.bisection import Bisection, Call, Rule, Side, calls_of, matched
from pto_insight.dumps.recording import HASH
from pto_insight.dumps.task_dump import DumpedArgument, TaskDump
from pto_insight.dumps.text import checked_dtype, typed
from pto_insight.graphs import AccessLog
from pto_insight.graphs.places import INPUT, OUTPUT

Hashes = dict[int, tuple[int, int, int]]


def side(calls: dict[int, Hashes], tasks: int, inputs: tuple[int, ...] = ()) -> Side:
    """Return a run with hashes of calls. ``inputs``: arguments that all tasks only read."""
    rows = [(INPUT if at in inputs else OUTPUT, at) for _ in range(tasks) for at in range(2)]
    log = SimpleNamespace(
        kernel_names=("add",) * tasks,
        tasks=np.array([(2 * task + 2,) for task in range(tasks)], [("accesses", "u4")]),
        accesses=np.array(rows, [("tag", "u1"), ("parameter", "u2")]),
    )
    made = {task: Call(hashes=hashes) for task, hashes in calls.items()}
    return Side("A", cast("Any", SimpleNamespace(log=log)), made, lambda tasks: {})


def test_outputs_that_cannot_be_compared_are_skipped() -> None:
    rule = Rule(0, 0, exact_integers=True)
    first = {
        0: {0: (8, 1, 2)},  # equal
        1: {0: (8, 1, 2)},  # written in place over other bytes
        2: {0: (8, 1, 1), 1: (8, 0, 5)},  # argument 0 is only read
        3: {0: (8, 0, 2), 1: (8, 0, 2)},  # argument 1 is not in the other run
        4: {0: (8, 0, 2)},  # no call in the other run
        5: {0: (8, 0, 2)},  # other bits
        6: {0: (9, 0, 2)},  # another size
    }
    second = {
        0: {0: (8, 1, 2)},
        1: {0: (8, 3, 4)},
        2: {0: (8, 3, 3), 1: (8, 0, 5)},
        3: {0: (8, 0, 2)},
        5: {0: (8, 0, 3)},
        6: {0: (8, 0, 2)},
    }
    found = Bisection(side(first, 8), side(second, 8), rule)
    assert (found.skipped, found.differing, found.resized) == ([1, 3, 4], {5: [0]}, [6])
    assert (found.equal, found.is_complete, found.alone) == (2, False, ([], []))
    inputs = {0: {0: (8, 1, 2), 1: (8, 0, 5)}, 1: {0: (8, 0, 1)}}
    other = {0: {0: (8, 3, 4), 1: (8, 0, 5)}}
    read = Bisection(side(inputs, 2, inputs=(0,)), side(other, 2), rule)
    assert (read.skipped, read.equal, read.is_complete) == ([], 1, True)


def test_the_calls_of_a_task_are_its_blocks_in_the_order_in_which_they_ended() -> None:
    tasks = np.array([(7, 1), (8, 3)], [("id", "u8"), ("blocks", "u4")])
    log = cast("Any", SimpleNamespace(has_ring_ids=False, tasks=tasks))
    rows = [(0, 1, 2, 8, 64), (4, 5, 2, 10, 64), (5, 6, 2, 9, 64), (5, 6, 3, 9, 4), (6, 7, 0, 7, 8)]
    calls = calls_of(log, np.array(rows, HASH))
    assert (calls[0].ids, calls[0].hashes) == ([7], {0: (8, 6, 7)})
    assert (calls[1].ids, calls[1].hashes) == ([8, 10, 9], {2: (64, 0, 6), 3: (4, 5, 6)})


def test_tasks_are_matched_by_kernel_line_and_occurrence() -> None:
    def log(*rows: tuple[str, int]) -> AccessLog:
        tasks = np.array([(1, line) for _, line in rows], [("file", "u4"), ("line", "u4")])
        names = tuple(name for name, _ in rows)
        return cast("Any", SimpleNamespace(kernel_names=names, tasks=tasks, files=("/a/g.cpp",)))

    first = log(("add", 3), ("add", 3), ("mul", 5), ("add", 9))
    second = log(("mul", 5), ("add", 3), ("neg", 4), ("add", 3))
    assert matched(first, second) == {0: 1, 1: 3, 2: 0}
    with pytest.raises(UsageError, match="no task of one run has a match in the other"):
        matched(first, log(("neg", 4)))


def test_bytes_without_a_type_are_compared_exactly() -> None:
    rule = Rule(1e-2, 1e-2, exact_integers=False)
    one, other = np.array([200, 200], "u1"), np.array([200, 201], "u1")
    assert rule.compared("", one, other, are_bytes=True).mismatches == 1
    assert rule.compared("", one, other, are_bytes=False).mismatches == 0, "uint8 of the case"
    rule = Rule(1e-2, 1e-2, exact_integers=False, dtype="uint8")
    assert rule.compared("", one, other, are_bytes=True).mismatches == 0, "with --dtype"
    numbers = np.array([1, 2], np.float32), np.array([1, 2.001], np.float32)
    assert rule.compared("", *numbers, are_bytes=True).mismatches == 0, "with --dtype"


def test_a_type_leaves_out_no_bytes() -> None:
    argument = DumpedArgument(0, "", "", "uint8", (10,), (1,), 0, 0, 10)
    dump: Any = SimpleNamespace(values=lambda phase, at: np.arange(10, dtype="u1"))
    for dtype, kind in (("float32", "u1"), ("int16", "i2"), (None, "u1")):
        values = typed(cast("TaskDump", dump), argument, "after", dtype)
        assert values is not None
        assert (values.dtype, values.nbytes) == (np.dtype(kind), 10)
    assert checked_dtype("f4") == "float32"
    for wrong in ("nonsense", "datetime64[s]", "timedelta64[s]", "2f4", "U3", "object"):
        with pytest.raises(UsageError, match="use a type of NumPy such as float32"):
            checked_dtype(wrong)
