"""Two devices of one process load the same C++ orchestration: each has its own copy."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

import pto_core
from pto_core import ChipCallable, CoreCallable, Device, Direction
from pto_core.kernels import KernelSource, OrchestrationSource

COUNTS_ITS_RUNS = """
#include "runtime.h"
extern "C" int build(Runtime*, uint64_t* args, int) {
  static int64_t runs = 0;
  *reinterpret_cast<int64_t*>(args[0]) = ++runs;
  return 0;
}
"""
ADDS_MANY_TIMES = """
#include "pto_orchestration_api.h"
extern "C" void build(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {4};
  for (int i = 0; i < 2000; ++i) {
    PTO2_SCOPE(rt) {
      void* memory = reinterpret_cast<void*>(args[0]);
      Tensor sum = make_tensor_external(memory, shape, 1, DataType::INT64);
      PTOParam params[] = {make_inout_param(sum), make_scalar_param(args[1])};
      pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
    }
  }
}
"""
ADD = """
#include <cstdint>
#include "tensor.h"
extern "C" void kernel_entry(int64_t* args) {
  int64_t* sum = reinterpret_cast<int64_t*>(
      reinterpret_cast<TensorData*>(args[0])->buffer.addr);
  for (int i = 0; i < 4; ++i) sum[i] += args[1];
}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# Invariant: Two devices share no static variable of a C++ orchestration.
def test_static_variables_of_an_orchestration_belong_to_one_device(tmp_path: Path) -> None:
    source = OrchestrationSource(write(tmp_path, "counts.cpp", COUNTS_ITS_RUNS), "build")

    def count(device: Device) -> int:
        runs = np.zeros(1, np.int64)
        device.run(chip, runs)
        return int(runs[0])

    chip = ChipCallable(source, {})
    with (
        pto_core.open_device("a2a3sim", runtime="host_build_graph") as first,
        pto_core.open_device("a2a3sim", runtime="host_build_graph", device=1) as second,
    ):
        assert [count(first), count(first), count(second), count(first)] == [1, 2, 1, 3]
        with pto_core.open_device("a2a3sim", runtime="host_build_graph", device=2) as third:
            assert [count(third), count(second)] == [1, 2]
    with pto_core.open_device("a2a3sim", runtime="host_build_graph") as again:
        assert count(again) == 1


def test_two_devices_run_one_orchestration_at_the_same_time(tmp_path: Path) -> None:
    source = OrchestrationSource(write(tmp_path, "adds.cpp", ADDS_MANY_TIMES), "build")
    kernel = CoreCallable(
        KernelSource(write(tmp_path, "add.cpp", ADD)),
        "aiv",
        (Direction.INOUT(np.int64, (4,)), Direction.SCALAR(int)),
    )
    chip = ChipCallable(source, {0: kernel})
    sums = [np.zeros(4, np.int64) for _ in range(2)]
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            runtime = "tensormap_and_ringbuffer"
            with pto_core.open_device("a2a3sim", runtime=runtime, device=number) as device:
                start.wait()
                for _ in range(5):
                    device.run(chip, sums[number], number + 1)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            problems.append(error)
            start.abort()

    start = threading.Barrier(2)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [each.tolist() for each in sums] == [[10_000] * 4, [20_000] * 4]
