"""The vector example, f = (a + b + 1)(a + b + 2), end to end: all Python, all C++, and mixed."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, CoreCallable, Device, KernelSource, kernel
from pto_core.errors import UsageError
from pto_core.kernels import In, OrchestrationSource, Out, Scalar

SHAPE = (128, 128)
F32 = "float32"

KERNEL = """
#include <cstdint>
#include <cstring>
extern "C" void kernel_entry(int64_t* args) {{
  const float* a = reinterpret_cast<const float*>(args[0]);
  {second}
  float* out = reinterpret_cast<float*>(args[2]);
  for (int64_t i = 0; i < args[3]; ++i) out[i] = {expression};
}}
"""
ARRAY = "const float* b = reinterpret_cast<const float*>(args[1]);"
NUMBER = "float b; std::memcpy(&b, &args[1], 4);"

HOST_GRAPH = """
#include "runtime.h"
extern "C" int build(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 4) return 3;
  const uint64_t n = args[3];
  const size_t bytes = n * 4;
  uint64_t dev[6];
  for (auto& one : dev) one = (uint64_t)runtime->host_api.device_malloc(bytes);
  runtime->host_api.copy_to_device((void*)dev[0], (void*)args[0], bytes);
  runtime->host_api.copy_to_device((void*)dev[1], (void*)args[1], bytes);
  runtime->record_tensor_pair((void*)args[2], (void*)dev[5], bytes);
  union { float f; uint32_t u; } one{1.0f}, two{2.0f};
  uint64_t t0[] = {dev[0], dev[1], dev[2], n}, t1[] = {dev[2], one.u, dev[3], n};
  uint64_t t2[] = {dev[2], two.u, dev[4], n}, t3[] = {dev[3], dev[4], dev[5], n};
  int a = runtime->add_task(t0, 4, 0, CoreType::AIV);
  int b = runtime->add_task(t1, 4, 1, CoreType::AIV);
  int c = runtime->add_task(t2, 4, 1, CoreType::AIV);
  int d = runtime->add_task(t3, 4, 2, CoreType::AIV);
  runtime->add_successor(a, b);
  runtime->add_successor(a, c);
  runtime->add_successor(b, d);
  runtime->add_successor(c, d);
  return 0;
}
"""

DEVICE_GRAPH = """
#include <initializer_list>
#include "runtime.h"
extern "C" int build(Runtime* runtime) {
  if (runtime->orch_argc != 4) return 3;
  auto& api = runtime->aicpu_build_api;
  uint64_t* args = runtime->orch_args;
  const uint64_t n = args[3];
  uint64_t tmp[3];
  for (auto& one : tmp) one = (uint64_t)api.device_malloc(n * 4);
  union { float f; uint32_t u; } one{1.0f}, two{2.0f};
  uint64_t t0[] = {args[0], args[1], tmp[0], n}, t1[] = {tmp[0], one.u, tmp[1], n};
  uint64_t t2[] = {tmp[0], two.u, tmp[2], n}, t3[] = {tmp[1], tmp[2], args[2], n};
  int a = api.add_task(runtime, t0, 4, 0, CoreType::AIV, 0);
  int b = api.add_task(runtime, t1, 4, 1, CoreType::AIV, 0);
  int c = api.add_task(runtime, t2, 4, 1, CoreType::AIV, 0);
  int d = api.add_task(runtime, t3, 4, 2, CoreType::AIV, 0);
  api.add_successor_conditional(runtime, a, b);
  api.add_successor_conditional(runtime, a, c);
  api.add_successor_conditional(runtime, b, d);
  api.add_successor_conditional(runtime, c, d);
  for (int task : {a, b, c, d}) api.publish_task(runtime, task);
  return 0;
}
"""


@kernel(core="aiv")
def add(a, b, out):
    np.add(a, b, out=out)


@kernel(core="aiv")
def multiply(a, b, out):
    np.multiply(a, b, out=out)


def graph(rt, a, b, f):
    total, first, second = (rt.empty(a.shape, a.dtype) for _ in range(3))
    tasks = [
        rt.add_task(add, (a, b, total)),
        rt.add_task(add, (total, 1.0, first)),
        rt.add_task(add, (total, 2, second)),
        rt.add_task(multiply, (first, second, f)),
    ]
    for producer, consumer in ((0, 1), (0, 2), (1, 3), (2, 3)):
        rt.add_successor(tasks[producer], tasks[consumer])
    for task in tasks:
        rt.publish(task)


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.full(SHAPE, 2, F32), np.full(SHAPE, 3, F32), np.zeros(SHAPE, F32)


@pytest.fixture
def kernels(tmp_path: Path) -> dict[int, CoreCallable]:
    sources = {
        0: ("add", ARRAY, "a[i] + b[i]"),
        1: ("add_scalar", NUMBER, "a[i] + b"),
        2: ("multiply", ARRAY, "a[i] * b[i]"),
    }
    found = {}
    for func_id, (name, second, expression) in sources.items():
        path = tmp_path / f"{name}.cpp"
        path.write_text(KERNEL.format(second=second, expression=expression))
        found[func_id] = CoreCallable(KernelSource(path), "aiv")
    return found


@pytest.fixture
def orchestration(runtime: str, tmp_path: Path) -> OrchestrationSource:
    path = tmp_path / "graph.cpp"
    path.write_text(HOST_GRAPH if runtime == "host_build_graph" else DEVICE_GRAPH)
    return OrchestrationSource(path, "build")


def test_all_in_python(device: Device) -> None:
    a, b, f = inputs()
    report = device.run(graph, a, b, f)
    assert (f == 42).all()
    assert report.tasks == 4
    assert sum(tasks for _, tasks, _ in report.cores) == 4
    assert all(core == "aiv" for core, tasks, _ in report.cores if tasks)
    assert (report.copies_in, report.copies_out) == (3, 3)
    assert (report.bytes_in, report.bytes_out) == (3 * a.nbytes, 3 * a.nbytes)
    assert report.statistics["edges"] == 4


def test_all_in_cpp(
    device: Device, orchestration: OrchestrationSource, kernels: dict[int, CoreCallable]
) -> None:
    chip = ChipCallable(orchestration, kernels, signature=("in", "in", "out"))
    for _ in range(2):
        a, b, f = inputs()
        report = device.run(chip, a, b, f, ctypes.c_int64(f.size))
        assert (f == 42).all()
        assert report.tasks == 4
        assert (report.copies_in, report.copies_out) == (2, 1)


def test_two_open_devices_load_the_same_libraries(
    runtime: str,
    orchestration: OrchestrationSource,
    kernels: dict[int, CoreCallable],
    shared_cache: Path,
) -> None:
    chip = ChipCallable(orchestration, kernels, signature=("in", "in", "out"))
    settings = {"cache_dir": shared_cache}
    with (
        pto_core.open_device("a2a3sim", runtime=runtime, device=1, settings=settings) as first,
        pto_core.open_device("a2a3sim", runtime=runtime, device=2, settings=settings) as second,
    ):
        for device in (first, second):
            a, b, f = inputs()
            device.run(chip, a, b, f, ctypes.c_int64(f.size))
            assert (f == 42).all()


def test_the_times_of_each_run_are_within_its_call(device: Device) -> None:
    for _ in range(2):
        begin = time.perf_counter_ns()
        report = device.run(graph, *inputs())
        elapsed = time.perf_counter_ns() - begin
        assert 0 < report.run_ns < elapsed


def test_options_of_sources(
    device: Device, orchestration: OrchestrationSource, kernels: dict[int, CoreCallable]
) -> None:
    """Compiler options name the folder of a header, and define a macro that the header uses."""
    folder = orchestration.path.parent
    (folder / "shared").mkdir()
    (folder / "shared" / "scale.h").write_text("#define SCALE (FACTOR * 2)\n")
    multiply = folder / "kernels" / "multiply.cpp"
    multiply.parent.mkdir()
    text = KERNEL.format(second=ARRAY, expression="a[i] * b[i] * SCALE")
    multiply.write_text(f'#include "scale.h"\n{text}')
    source = KernelSource(multiply, ["-I../shared", "-DFACTOR=5"])
    graph_source = folder / "renamed.cpp"
    graph_source.write_text(orchestration.path.read_text().replace(" build(", " NAME("))
    chip = ChipCallable(
        OrchestrationSource(graph_source, "build", ["-DNAME=build"]),
        {**kernels, 2: CoreCallable(source, "aiv")},
        signature=("in", "in", "out"),
    )
    a, b, f = inputs()
    device.run(chip, a, b, f, ctypes.c_int64(f.size))
    assert (f == 420).all()


def test_python_orchestration_of_cpp_kernels(
    device: Device, kernels: dict[int, CoreCallable]
) -> None:
    def mixed(rt, a, b, f):
        size = a.nbytes // 4
        total = rt.empty(a.shape, a.dtype)
        first = rt.add_task(kernels[0], (a, b, total, size))
        second = rt.add_task(2, (total, total, f, size))
        rt.add_successor(first, second)
        rt.publish(first)
        rt.publish(second)

    a, b, f = inputs()
    device.run(ChipCallable(mixed, {2: kernels[2]}), a, b, f)
    assert (f == 25).all()


def test_cpp_orchestration_of_python_kernels(
    device: Device, orchestration: OrchestrationSource
) -> None:
    arrays = (In(F32, SHAPE), In(F32, SHAPE), Out(F32, SHAPE), Scalar(int))
    with_number = (In(F32, SHAPE), Scalar(F32), Out(F32, SHAPE), Scalar(int))

    def plus(a, b, out, size):
        assert size == out.size
        np.add(a, b, out=out)

    def times(a, b, out, size):
        np.multiply(a, b, out=out)

    children = {
        0: CoreCallable(plus, "aiv", arrays),
        1: CoreCallable(plus, "aiv", with_number),
        2: CoreCallable(times, "aiv", arrays),
    }
    a, b, f = inputs()
    device.run(ChipCallable(orchestration, children), a, b, f, f.size)
    assert (f == 42).all()


def test_cpp_orchestration_needs_declared_python_kernels(
    device: Device, orchestration: OrchestrationSource
) -> None:
    chip = ChipCallable(orchestration, {0: add, 1: add, 2: multiply})
    with pytest.raises(UsageError, match="'add' runs under a C\\+\\+ orchestration"):
        device.run(chip, *inputs(), 1)
