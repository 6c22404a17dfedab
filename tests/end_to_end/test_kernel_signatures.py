"""The signature of a C++ kernel holds for the submits of a C++ orchestration, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_core import ChipCallable, CoreCallable, Direction, KernelSource, Scalar, open_device
from pto_core.errors import UsageError
from pto_core.kernels import OrchestrationSource

FILL = """#include <cstdint>
#include "tensor.h"
extern "C" void kernel_entry(int64_t* args) {
  auto* out = reinterpret_cast<TensorData*>(args[0]);
  reinterpret_cast<float*>(out->buffer.addr)[0] = static_cast<float>(args[1]);
}
"""
RING = """#include "pto_orchestration_api.h"
extern "C" void entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {4};
  Tensor x = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1);
  PTOParam params[] = {PARAMS};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, sizeof params / sizeof *params);
}
"""
GRAPH = """#include "runtime.h"
extern "C" int build(Runtime* rt, uint64_t*, int) {
  void* memory = rt->host_api.device_malloc(16);
  const auto x = reinterpret_cast<uint64_t>(memory);
  uint64_t args[] = {ARGS};
  rt->add_task(args, sizeof args / sizeof *args, 0, CoreType::AIV);
  return 0;
}
"""
EMPTY = '#include <cstdint>\nextern "C" void kernel_entry(int64_t*) {}\n'


def run(tmp_path: Path, runtime: str, graph: str, kernel: str, signature: tuple) -> None:
    source, body = tmp_path / "graph.cpp", tmp_path / "fill.cpp"
    source.write_text(graph)
    body.write_text(kernel)
    entry = "entry" if runtime == "tensormap_and_ringbuffer" else "build"
    fill = CoreCallable(KernelSource(body), "aiv", signature=signature)
    chip = ChipCallable(OrchestrationSource(source, entry), {0: fill})
    with open_device("a2a3sim", runtime=runtime) as device:
        device.run(chip, np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("make_output_param(x), make_scalar_param(uint64_t{3})", None),
        ("make_inout_param(x), make_scalar_param(uint64_t{3})", None),
        (
            "make_scalar_param(uint64_t{3}), make_output_param(x)",
            r"graph\.cpp:6: parameter 0 \(SCALAR\) of task 0 of ring 0 \(function 0\) does not fit "
            "the signature of its kernel, which declares it out, float32; pass the parameters in",
        ),
        (
            "make_input_param(x), make_scalar_param(uint64_t{3})",
            r"graph\.cpp:6: parameter 0 \(INPUT\) of .* which declares it out, float32; ",
        ),
        (
            "make_output_param(x), make_scalar_param(uint64_t{1} << 40)",
            r"graph\.cpp:6: parameter 1 \(SCALAR\) of .* which declares it scalar, int32; ",
        ),
        ("make_output_param(x)", r"has 1 parameters, but the signature of its kernel lists 2; "),
    ],
)
def test_parameters_of_tensors(tmp_path: Path, params: str, problem: str | None) -> None:
    signature = (Direction.OUT("float32", (4,)), Scalar("int32"))
    graph = RING.replace("PARAMS", params)
    if problem is None:
        run(tmp_path, "tensormap_and_ringbuffer", graph, FILL, signature)
        return
    with pytest.raises(UsageError, match=problem):
        run(tmp_path, "tensormap_and_ringbuffer", graph, FILL, signature)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("x, 3", None),
        (
            "3, x",
            r"graph\.cpp:6: argument 0 of task 0 \(function 0\) is 0x3, but the signature of its "
            "kernel declares it out, float32: ",
        ),
        (
            "x, uint64_t{1} << 40",
            r"argument 1 of task 0 .* declares it scalar, int32: the type has",
        ),
        ("x", r"has 1 arguments, but the signature of its kernel lists 2; pass as many"),
    ],
)
def test_words_of_a_build_graph(tmp_path: Path, args: str, problem: str | None) -> None:
    signature = (Direction.OUT("float32", (4,)), Scalar("int32"))
    graph = GRAPH.replace("ARGS", args)
    if problem is None:
        run(tmp_path, "host_build_graph", graph, EMPTY, signature)
        return
    with pytest.raises(UsageError, match=problem):
        run(tmp_path, "host_build_graph", graph, EMPTY, signature)
