"""A kernel that keeps an array causes a warning; the memory lives as long as the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import In, Out, kernel
from pto_core.errors import TaskFailedError


def run_and_close(runtime: str, body: object, size: int = 1 << 16) -> None:
    def graph(rt, a: In, out: Out):
        rt.publish(rt.add_task(body, (a, out)))

    with pto_core.open_device("a2a3sim", runtime=runtime) as device:
        device.run(graph, np.ones(size), np.zeros(size))


def test_a_kept_array_outlives_its_device(runtime: str, threads: Any) -> None:
    kept = []

    @kernel(core="aiv")
    def keep(a, out):
        kept.append(a)
        kept.append(out[5:])

    before = threads.now()
    with pytest.warns(RuntimeWarning, match="'keep' kept its argument 0 .* keep a copy"):
        run_and_close(runtime, keep)
    for array in kept:
        array.sum()
    assert [array.flags.writeable for array in kept] == [False, True]
    kept[1][0] = 3
    assert threads.now() - before
    kept.clear()
    del array
    assert not threads.since(before)


def test_an_array_in_an_exception_outlives_its_device(runtime: str) -> None:
    @kernel(core="aiv")
    def fail(a, out):
        raise ValueError(a)

    with (
        pytest.warns(RuntimeWarning, match="'fail' kept its argument 0"),
        pytest.raises(TaskFailedError) as caught,
    ):
        run_and_close(runtime, fail)
    assert caught.value.__cause__ is not None
    caught.value.__cause__.args[0].sum()


def test_using_arrays_is_not_keeping_them(
    runtime: str, threads: Any, recwarn: pytest.WarningsRecorder
) -> None:
    kept = []

    @kernel(core="aiv")
    def use(a, out):
        first, rest = a[:1], a[1:].reshape(-1)
        out[:1] = first
        out[1:] = rest
        kept.append(a.copy())

    before = threads.now()
    run_and_close(runtime, use)
    assert not threads.since(before)
    assert kept[0].sum() == 1 << 16
    assert not recwarn.list
