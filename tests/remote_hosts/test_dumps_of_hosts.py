"""Dumps, counters and texts of a chip below a Worker on another host."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote_hosts import Agent, allow_list, counted, running_agent, task_args, wait_until

from pto_core import CallConfig, ChipCallable, TaskArgs, TensorArgType, Worker
from pto_core.chip import CoreCallable, KernelSource, OrchestrationSource
from pto_core.errors import RightsError, TaskFailedError
from pto_insight.dumps import TaskDump
from pto_insight.traces.files import read_trace

GRAPH = """
#include "pto_orchestration_api.h"
extern "C" void build(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {4};
  Tensor x = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1, DataType::FLOAT32);
  PTOParam params[] = {make_inout_param(x)};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
}
"""
KERNEL = """
#include <cstdint>
#include "pto/kernel/print.hpp"
#include "tensor.h"
extern "C" void kernel_entry(int64_t* args) {
  auto* x = reinterpret_cast<float*>(reinterpret_cast<TensorData*>(args[0])->buffer.addr);
  pto_printf("x[1] = %g", x[1]);
  for (int i = 0; i < 4; ++i) x[i] *= 2;
}
"""
TEXT = re.compile(
    r"^\[L4/host0\] pto: double \(task 0 of ring 0, AIV \d+, device 0\), double.cpp:7: x\[1\] = 1$",
    re.MULTILINE,
)


def run_there(
    agent: Agent, folder: Path, config: CallConfig, has_arrived: Callable[[], bool] = lambda: True
) -> list[float]:
    """Double four numbers on a chip of the agent with a configuration; return the results.

    The session ends when ``has_arrived`` is true.
    """
    (folder / "double.cpp").write_text(KERNEL)
    (folder / "graph.cpp").write_text(GRAPH)
    remote = agent.worker(
        num_sub_workers=0, device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer"
    )
    kernels = {0: CoreCallable(KernelSource(folder / "double.cpp"), "aiv", name="double")}
    source = OrchestrationSource(folder / "graph.cpp", "build")
    chip = remote.register(ChipCallable(source, kernels, ("inout",)))

    def graph(orch: Any, args: Any, config: Any) -> None:
        given = TaskArgs()
        given.add_tensor(args.tensor(0), TensorArgType.INOUT)
        orch.submit_next_level(chip, given, config)

    with Worker(level=4) as worker:
        step, there = worker.register(graph), worker.add_worker(remote)
        x = counted(worker, 4)
        given = task_args(x, out=TensorArgType.INOUT)
        worker.run(lambda o, a, c: o.submit_next_level(step, given, config, worker=there))
        wait_until(has_arrived)
        return x.tolist()


def test_a_client_without_the_right_chooses_no_folder(keys: Path, tmp_path: Path) -> None:
    here, chosen = tmp_path / "here", tmp_path / "chosen"
    here.mkdir()
    chosen.mkdir()
    config = CallConfig(
        enable_l2_swimlane=1,
        enable_dump_tensor=3,
        enable_dep_gen=1,
        enable_scope_stats=1,
        output_prefix=str(chosen / "it"),
    )
    file = allow_list(tmp_path, keys)
    with running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent:
        with pytest.raises(TaskFailedError, match=r"ann may not; .*host_settings = true") as error:
            run_there(agent, here, config)
        assert isinstance(error.value.__cause__, RightsError)
        assert list(chosen.iterdir()) == []
        assert run_there(agent, here, CallConfig(block_dim=1)) == [0, 2, 4, 6]


def test_a_chip_of_another_host_writes_its_files_there(
    new_agent: Agent,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    config = CallConfig(enable_dump_tensor=3, enable_pmu=1, output_prefix="out/it")
    text = ""

    def has_arrived() -> bool:
        nonlocal text
        text += capfd.readouterr().err
        return TEXT.search(text) is not None

    assert run_there(new_agent, here, config, has_arrived) == [0, 2, 4, 6]
    assert {one.name for one in here.iterdir()} == {"double.cpp", "graph.cpp"}
    out = tmp_path / "out"  # in the folder in which the agent was started
    dump = TaskDump.read(out / "it.device0.run1" / "double#0.npz")
    np.testing.assert_array_equal(dump.values("before", 0), [0, 1, 2, 3])
    np.testing.assert_array_equal(dump.values("after", 0), [0, 2, 4, 6])
    trace = read_trace(out / "it.device0.run1.trace.npz")
    assert trace.counters or "the counters task-clock, " in text
