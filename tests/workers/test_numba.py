"""Functions of numba as tasks and kernels; `.ci/install-toolchain` installs numba."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pto_core import In, NoDep, Out, kernel, open_device, task
from pto_core.errors import UsageError

pytestmark = pytest.mark.toolchain

LIMIT = 1e9


@pytest.fixture(scope="module")
def njit() -> Any:
    return importlib.import_module("numba").njit


def test_a_task_above_njit_runs_in_a_child(make, njit: Any) -> None:
    @njit
    def tripled(value):
        return 3 * value

    @task
    @njit
    def fill(x: In, out: Out):
        for i in range(len(x)):
            out[i] = tripled(x[i])

    @task(retries=1)
    @njit
    def total(values, factor=2):
        found = 0.0
        for value in values:
            found += factor * value
        return found

    worker = make(num_sub_workers=1)
    out = worker.shared_array(4, "float64")
    with worker.session() as s:
        assert s.submit(fill, np.arange(4.0), out).result().tolist() == [0, 3, 6, 9]
        assert s.submit(total, np.ones(4)).result() == 8
        assert s.submit(total, np.ones(4), factor=3).result() == 12
    assert (total(np.ones(1)), total.name.rpartition(".")[2]) == (2, "total")


def meet(mine: Out, everyone: NoDep) -> None:
    mine[0] = 1
    while everyone[0, 0] + everyone[1, 0] < 2 and mine[1] < LIMIT:
        mine[1] += 1


def test_two_cores_run_a_compiled_kernel_at_the_same_time() -> None:
    compiled = kernel(core="aiv", jit="numba")(meet)

    def graph(rt: Any, flags: Out) -> None:
        for i in range(2):
            rt.submit(compiled, flags[i], flags)

    flags = np.zeros((2, 2))
    with open_device("a2a3sim", runtime="pto2", settings={"sim.workers": 2}) as device:
        device.run(graph, flags)
    assert flags[:, 0].tolist() == [1, 1]
    assert flags[:, 1].max() < LIMIT, "one core waited for the interpreter lock of the other"


def test_closures_of_the_same_code_are_different_kernels() -> None:
    def scaled(factor: float) -> Any:
        @kernel(core="aiv", jit="numba")
        def scale(x: In, out: Out):
            for i in range(len(x)):
                out[i] = factor * x[i]

        return scale

    two, three = scaled(2.0), scaled(3.0)
    assert two.digest != three.digest


def test_a_compiled_function_that_loses_its_result_is_refused(njit: Any) -> None:
    def lost(x: In, out: Out):
        out = x + 1  # noqa: F841

    with pytest.raises(UsageError, match=r"write out\[:\] = \.\.\. instead of out"):
        task(njit(lost))
