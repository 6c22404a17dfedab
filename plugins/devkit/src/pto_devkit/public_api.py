"""Check a backend and a runtime through the public Python API."""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_core
from pto_core import plugins
from pto_core.errors import CycleError, TaskFailedError
from pto_devkit.checks import ContractError, expect
from pto_devkit.subjects import BackendSubject, RuntimeSubject


def check_arrays(backend: BackendSubject) -> None:
    """Require that arrays of any shape are unchanged after a copy to the device and back."""
    with pto_core.open_device(backend.name, runtime=_any_runtime()) as device:
        for shape in ((0,), (1,), (3, 5), (1000, 17)):
            host = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
            array = device.to_device(host)
            expect(
                np.array_equal(array.to_host(), host),
                f"an array of shape {shape} came back changed",
            )
            array.free()


def check_close_twice(backend: BackendSubject) -> None:
    """Require that the second close of a device does nothing."""
    device = pto_core.open_device(backend.name, runtime=_any_runtime())
    device.close()
    device.close()


def check_graph(runtime: RuntimeSubject) -> None:
    """Require the right result and task counts for a diamond of Python kernels."""

    @pto_core.kernel(core="aiv")
    def double(source: Any, target: Any) -> None:
        target[:] = source * 2

    @pto_core.kernel(core="aic")
    def add(left: Any, right: Any, target: Any) -> None:
        target[:] = left + right

    def graph(rt: Any, source: pto_core.In, target: pto_core.Out) -> None:
        first, left, right = (rt.empty((64,), np.float32) for _ in range(3))
        root = rt.add_task(double, (source, first))
        sides = [rt.add_task(double, (first, side)) for side in (left, right)]
        join = rt.add_task(add, (left, right, target))
        for side in sides:
            rt.add_successor(root, side)
            rt.add_successor(side, join)
        for task in (root, *sides, join):
            rt.publish(task)

    source = np.arange(64, dtype=np.float32)
    target = np.zeros(64, dtype=np.float32)
    with pto_core.open_device(runtime.backend.name, runtime=runtime.name) as device:
        report = device.run(graph, source, target)
    expect(np.array_equal(target, source * 8), f"the diamond of {source} returned {target}")
    expect(report.tasks == 4, f"the report of a diamond counts {report.tasks} tasks")


def check_errors(runtime: RuntimeSubject) -> None:
    """Require that a cycle and a failing kernel raise their errors, and the device stays usable."""

    class OnPurposeError(Exception):
        pass

    @pto_core.kernel(core="aiv")
    def fail() -> None:
        raise OnPurposeError

    @pto_core.kernel(core="aiv")
    def idle() -> None:
        pass

    def cycle(rt: Any) -> None:
        tasks = [rt.add_task(idle, ()) for _ in range(2)]
        rt.add_successor(tasks[0], tasks[1])
        rt.add_successor(tasks[1], tasks[0])
        for task in tasks:
            rt.publish(task)

    def failing(rt: Any) -> None:
        rt.publish(rt.add_task(fail, ()))

    def right(rt: Any) -> None:
        rt.publish(rt.add_task(idle, ()))

    with pto_core.open_device(runtime.backend.name, runtime=runtime.name) as device:
        for wrong, wanted in ((cycle, CycleError), (failing, TaskFailedError)):
            try:
                device.run(wrong)
            except wanted as error:
                if wanted is TaskFailedError:
                    expect(
                        isinstance(error.__cause__, OnPurposeError),
                        f"the kernel's own exception is lost: __cause__ is {error.__cause__!r}",
                    )
            else:
                expect(False, f"{wrong.__name__}: no {wanted.__name__}")
            report = device.run(right)
            expect(
                report.tasks == 1,
                f"the run after {wanted.__name__} ran {report.tasks} tasks, expected 1",
            )


def _any_runtime() -> str:
    """Return the name of an installed runtime variant, because opening a device requires one."""
    for record in plugins.installed("runtime"):
        if plugins.inspect(record).health.ok:
            return record.name
    raise ContractError("no healthy runtime is installed; a device cannot be opened without one")
