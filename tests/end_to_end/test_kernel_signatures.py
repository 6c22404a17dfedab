"""The signature of a C++ kernel holds for the submits of a C++ orchestration, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_core import ChipCallable, CoreCallable, Direction, KernelSource, Scalar, open_device
from pto_core.errors import UsageError
from pto_core.kernels import OrchestrationSource

# Each orchestration has all submits of its test, one in each line; an argument of the run selects
# one. So it is compiled once.
FIRST_LINE = 8
FILL = """#include <cstdint>
#include "tensor.h"
extern "C" void kernel_entry(int64_t* args) {
  auto* out = reinterpret_cast<TensorData*>(args[0]);
  reinterpret_cast<float*>(out->buffer.addr)[0] = static_cast<float>(args[1]);
}
"""
RING = """#include "pto_orchestration_api.h"
#define SIZE(list) static_cast<int>(sizeof list / sizeof *list)
#define CALL(list) pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, list, SIZE(list))
#define SUBMIT(...) { PTOParam list[] = {__VA_ARGS__}; CALL(list); }
extern "C" void entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {4};
  Tensor x = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1);
"""
RING_SUBMITS = (
    ("make_output_param(x), make_scalar_param(uint64_t{3})", None),
    ("make_inout_param(x), make_scalar_param(uint64_t{3})", None),
    (
        "make_scalar_param(uint64_t{3}), make_output_param(x)",
        r"LINE: parameter 0 \(SCALAR\) of task 0 of ring 0 \(function 0\) does not fit the "
        "signature of its kernel, which declares it out, float32; pass the parameters in",
    ),
    (
        "make_input_param(x), make_scalar_param(uint64_t{3})",
        r"LINE: parameter 0 \(INPUT\) of .* which declares it out, float32; ",
    ),
    (
        "make_output_param(x), make_scalar_param(uint64_t{1} << 40)",
        r"LINE: parameter 1 \(SCALAR\) of .* which declares it scalar, int32; ",
    ),
    ("make_output_param(x)", r"has 1 parameters, but the signature of its kernel lists 2; "),
)
GRAPH = """#include "runtime.h"
#define SIZE(list) static_cast<int>(sizeof list / sizeof *list)
#define CALL(list) rt->add_task(list, SIZE(list), 0, CoreType::AIV)
#define SUBMIT(...) { uint64_t list[] = {__VA_ARGS__}; CALL(list); }
extern "C" int entry(Runtime* rt, uint64_t* args, int) {
  void* memory = rt->host_api.device_malloc(16);
  const auto x = reinterpret_cast<uint64_t>(memory);
"""
GRAPH_SUBMITS = (
    ("x, 3", None),
    (
        "3, x",
        r"LINE: argument 0 of task 0 \(function 0\) is 0x3, but the signature of its kernel "
        "declares it out, float32: ",
    ),
    (
        "x, uint64_t{1} << 40",
        r"argument 1 of task 0 .* declares it scalar, int32: the type has",
    ),
    ("x", r"has 1 arguments, but the signature of its kernel lists 2; pass as many"),
)
EMPTY = '#include <cstdint>\nextern "C" void kernel_entry(int64_t*) {}\n'


def source(begin: str, submits: tuple[tuple[str, str | None], ...], end: str) -> str:
    lines = [f"  if (args[1] == {n}) SUBMIT({words})\n" for n, (words, _) in enumerate(submits)]
    return begin + "".join(lines) + end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("signatures")
    (made / "tensormap_and_ringbuffer.cpp").write_text(source(RING, RING_SUBMITS, "}\n"))
    (made / "host_build_graph.cpp").write_text(source(GRAPH, GRAPH_SUBMITS, "  return 0;\n}\n"))
    (made / "fill.cpp").write_text(FILL)
    (made / "empty.cpp").write_text(EMPTY)
    return made


def check(folder: Path, runtime: str, kernel: str, number: int, problem: str | None) -> None:
    """Run the submit with this number; it must have this problem."""
    signature = (Direction.OUT("float32", (4,)), Scalar("int32"))
    body = CoreCallable(KernelSource(folder / kernel), "aiv", signature=signature)
    chip = ChipCallable(OrchestrationSource(folder / f"{runtime}.cpp", "entry"), {0: body})
    with open_device("a2a3sim", runtime=runtime) as device:
        if problem is None:
            device.run(chip, np.zeros(4, np.float32), number)
            return
        line = rf"{runtime}\.cpp:{FIRST_LINE + number}"
        with pytest.raises(UsageError, match=problem.replace("LINE", line)):
            device.run(chip, np.zeros(4, np.float32), number)


@pytest.mark.parametrize(("number", "problem"), list(enumerate(one for _, one in RING_SUBMITS)))
def test_parameters_of_tensors(folder: Path, number: int, problem: str | None) -> None:
    check(folder, "tensormap_and_ringbuffer", "fill.cpp", number, problem)


@pytest.mark.parametrize(("number", "problem"), list(enumerate(one for _, one in GRAPH_SUBMITS)))
def test_words_of_a_build_graph(folder: Path, number: int, problem: str | None) -> None:
    check(folder, "host_build_graph", "empty.cpp", number, problem)
