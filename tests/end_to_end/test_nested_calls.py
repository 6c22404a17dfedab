"""Python kernels must not use rt, even if they run inside a submit."""

from __future__ import annotations

import numpy as np
import pytest

import pto_core
from pto_core.errors import TaskFailedError, UsageError

RUNTIMES = ("host_build_graph", "aicpu_build_graph")


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_rt_is_refused_inside_a_kernel(name: str, mode: str) -> None:
    refused = []

    @pto_core.kernel(core="aiv")
    def submits(a: np.ndarray) -> None:
        try:
            graphs[-1].add_task(harmless, (a,))
        except UsageError as error:
            refused.append(error)
            raise

    @pto_core.kernel(core="aiv")
    def harmless(a: np.ndarray) -> None:
        a += 1

    graphs = []

    def graph(rt, a, kernel=submits) -> None:
        graphs.append(rt)
        for _ in range(20):  # so many calls that some task runs inside one of them
            task = rt.add_task(kernel, (a,))
            if name == "aicpu_build_graph":
                rt.publish(task)

    settings = {"sim.mode": mode}
    with pto_core.open_device("a2a3sim", runtime=name, settings=settings) as device:
        with pytest.raises(TaskFailedError, match="rt was used inside a kernel"):
            device.run(graph, np.zeros(4, np.float32))
        assert refused
        values = np.zeros(4, np.float32)
        device.run(lambda rt, a: graph(rt, a, harmless), values)
        assert values.tolist() == [20.0] * 4
