"""Test programs that pypto generates, with a stand-in for its generator and its driver.

``write_program`` writes the files that pypto writes for ``out = (a @ b) * factor + bias``, with
kernels as ``ptoas`` could write them. ``compile_and_assemble`` and ``execute_on_device`` do the
steps of the functions of these names in pypto.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _task_interface import __build_commit__
from pto_core import run_case
from pto_core.errors import CompileError, UnsupportedError, UsageError
from simpler._log import get_logger
from simpler.task_interface import (
    ArgDirection,
    CallConfig,
    ChipCallable,
    CoreCallable,
    DataType,
    TaskArgs,
    scalar_to_uint64,
)
from simpler.worker import Worker
from simpler_setup import KernelCompiler
from simpler_setup.elf_parser import extract_text_section
from simpler_setup.log_config import parse_level
from simpler_setup.pto_isa import ensure_pto_isa_root
from simpler_setup.torch_interop import (
    make_chip_tensor_arg,
    make_tensor_arg,
    torch_dtype_to_datatype,
)

KERNEL_CONFIG = """\
from pathlib import Path

from simpler.task_interface import ArgDirection as D

_ROOT = Path(__file__).parent

RUNTIME_CONFIG = {{"runtime": "{runtime}", "aicpu_thread_num": 4, "block_dim": 3}}

ORCHESTRATION = {{
    "source": str(_ROOT / "orchestration" / "matmul_bias.cpp"),
    "function_name": "aicpu_orchestration_entry",
    "signature": [D.IN, D.IN, D.IN, D.OUT],
}}

KERNELS = [
    {{
        "func_id": 0,
        "name": "matmul",
        "source": str(_ROOT / "kernels" / "aic" / "matmul.cpp"),
        "core_type": "aic",
        "signature": [D.IN, D.IN, D.OUT],
    }},
    {{
        "func_id": 1,
        "name": "bias",
        "source": str(_ROOT / "kernels" / "aiv" / "bias.cpp"),
        "core_type": "aiv",
        "signature": [D.IN, D.IN, D.OUT],
        "external": True,
        "extra_include_dirs": [str(_ROOT / "include")],
        "enable_sdma": False,
    }},
]
"""

ORCHESTRATION = """\
#include <stdint.h>

#include "pto_orchestration_api.h"

extern "C" {

__attribute__((visibility("default"))) PTO2OrchestrationConfig aicpu_orchestration_config(
    const ChipTaskArgs& orch_args) {
  (void)orch_args;
  return PTO2OrchestrationConfig{.expected_arg_count = 5};
}

__attribute__((visibility("default"))) void aicpu_orchestration_entry(
    const ChipTaskArgs& orch_args) {
  const ChipTensor& ext_a = orch_args.tensor(0).ref();
  const ChipTensor& ext_b = orch_args.tensor(1).ref();
  const ChipTensor& ext_bias = orch_args.tensor(2).ref();
  const ChipTensor& ext_out = orch_args.tensor(3).ref();
  float factor = from_u64<float>(orch_args.scalar(0));

  PTO2_SCOPE() {
    uint32_t product_shapes[2] = {ext_a.shapes[0], ext_b.shapes[1]};
    TensorCreateInfo product_ci(product_shapes, 2, DataType::FLOAT32);
    CoreTaskArgs params_t0;
    params_t0.add_input(ext_a);
    params_t0.add_input(ext_b);
    params_t0.add_output(product_ci);
    TaskOutputTensors outs_t0 = rt_submit_aic_task(0, params_t0);
    const ChipTensor& product = outs_t0.get_ref(0);
    for (uint32_t row = 0; row < product_shapes[0]; row += 4) {
      uint32_t tile_shapes[2] = {4, product_shapes[1]};
      uint32_t tile_offsets[2] = {row, 0};
      ChipTensor product_tile = product.view(tile_shapes, tile_offsets);
      ChipTensor out_tile = ext_out.view(tile_shapes, tile_offsets);
      CoreTaskArgs params_t1;
      params_t1.add_input(product_tile);
      params_t1.add_input(ext_bias);
      params_t1.add_output(out_tile);
      params_t1.add_scalar(factor);
      rt_submit_aiv_task(1, params_t1);
    }
  }
}

}  // extern "C"
"""

MATMUL = """\
#include <stdint.h>

#include "tensor.h"

#ifndef __DAV_CUBE__
#error "this kernel is for cube cores"
#endif

static __aicore__ __gm__ float* data_of(__gm__ ChipTensor* tensor) {
  return reinterpret_cast<__gm__ float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ __attribute__((always_inline)) void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* a = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  __gm__ ChipTensor* b = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  for (uint32_t i = 0; i < out->shapes[0]; ++i) {
    for (uint32_t j = 0; j < out->shapes[1]; ++j) {
      float sum = 0;
      for (uint32_t k = 0; k < a->shapes[1]; ++k) {
        sum += data_of(a)[i * a->strides[0] + k] * data_of(b)[k * b->strides[0] + j];
      }
      data_of(out)[i * out->strides[0] + j] = sum;
    }
  }
}
"""

BIAS = """\
#include <stdint.h>
#include <string.h>

#include "tensor.h"

#include "scaled.h"

#ifndef __DAV_VEC__
#error "this kernel is for vector cores"
#endif

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* in = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  __gm__ ChipTensor* bias = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  float factor;
  memcpy(&factor, &args[3], sizeof factor);
  __gm__ float* from = reinterpret_cast<__gm__ float*>(in->buffer.addr) + in->start_offset;
  __gm__ float* add = reinterpret_cast<__gm__ float*>(bias->buffer.addr) + bias->start_offset;
  __gm__ float* to = reinterpret_cast<__gm__ float*>(out->buffer.addr) + out->start_offset;
  for (uint32_t i = 0; i < out->shapes[0]; ++i) {
    for (uint32_t j = 0; j < out->shapes[1]; ++j) {
      to[i * out->strides[0] + j] = scaled(from[i * in->strides[0] + j], factor) + add[j];
    }
  }
}
"""

GOLDEN = """\
import ctypes

import numpy as np

__outputs__ = ["out"]
RTOL = ATOL = 1e-5


def generate_inputs(params):
    random = np.random.default_rng(1)
    a, b = (random.random((16, 16), np.float32) for _ in range(2))
    bias, out = random.random(16, np.float32), np.zeros((16, 16), np.float32)
    named = {"a": a, "b": b, "bias": bias, "out": out}
    return [*named.items(), ("factor", ctypes.c_float(0.5))]


def compute_golden(tensors, params):
    tensors["out"][:] = tensors["a"] @ tensors["b"] * np.float32(0.5) + tensors["bias"]
"""


def write_program(folder: Path, runtime: str) -> None:
    """Write the folder of a program for ``runtime``, and the ``golden.py`` of the test."""
    texts = {
        "kernel_config.py": KERNEL_CONFIG.format(runtime=runtime),
        "orchestration/matmul_bias.cpp": ORCHESTRATION,
        "kernels/aic/matmul.cpp": MATMUL,
        "kernels/aiv/bias.cpp": BIAS,
        "include/scaled.h": "inline float scaled(float x, float factor) { return x * factor; }\n",
        "golden.py": GOLDEN,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def load(path: Path) -> Any:
    """Execute a Python file and return its module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GeneratedKernelCompiler(KernelCompiler):
    """The compiler of pypto: it adds the include folders of the runtime that a program names."""

    def __init__(self, platform: str, runtime: str) -> None:
        super().__init__(platform)
        self._runtime_folder = self.project_root / "src" / "a2a3" / "runtime" / runtime

    def get_incore_include_dirs(self) -> list[str]:
        build_config = load(self._runtime_folder / "build_config.py").BUILD_CONFIG
        listed = build_config["aicore"]["include_dirs"]
        folders = [self._runtime_folder / one for one in listed]
        common = self.project_root / "src" / "common"
        return [str(one) for one in (*folders, common, common / "task_interface")]


def compile_and_assemble(folder: Path, platform: str) -> tuple[ChipCallable, str]:
    """Compile the sources of a program; return its callable and the name of its runtime."""
    config = load(folder / "kernel_config.py")
    runtime = config.RUNTIME_CONFIG["runtime"]
    compiler = GeneratedKernelCompiler(platform, runtime)
    children = []
    for kernel in config.KERNELS:
        binary = compiler.compile_incore(
            kernel["source"],
            core_type=kernel["core_type"],
            pto_isa_root=ensure_pto_isa_root(),
            extra_include_dirs=[
                *compiler.get_incore_include_dirs(),
                *kernel.get("extra_include_dirs", ()),
            ],
            build_dir=str(folder / "build"),
        )
        core = CoreCallable.build(kernel["signature"], extract_text_section(binary))
        children.append((kernel["func_id"], core))
    entry = config.ORCHESTRATION
    binary = compiler.compile_orchestration(runtime, entry["source"])
    name = entry["function_name"]
    return ChipCallable.build(entry["signature"], name, binary, children=children), runtime


def execute_on_device(
    chip: ChipCallable, runtime: str, tensors: list[Any], scalars: list[Any], platform: str
) -> None:
    """Run a callable once on a device."""
    worker = Worker(level=2, platform=platform, runtime=runtime, device_id=0)
    handle = worker.register(chip)
    worker.init()
    try:
        args = TaskArgs()
        for tensor in tensors:
            args.add_tensor(tensor)
        for scalar in scalars:
            args.add_scalar(scalar_to_uint64(scalar))
        config = CallConfig()
        config.aicpu_thread_num = 4
        worker.run(handle, args, config)
    finally:
        worker.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("program")


@pytest.mark.parametrize("runtime", ["tensormap_and_ringbuffer", "host_build_graph"])
def test_a_program_is_compiled_and_runs(folder: Path, runtime: str) -> None:
    write_program(folder, runtime)
    chip, stated = compile_and_assemble(folder, "a2a3sim")
    golden = load(folder / "golden.py")
    given = dict(golden.generate_inputs({}))
    expected = {**given, "out": given["out"].copy()}
    golden.compute_golden(expected, {})
    factor = given.pop("factor")
    tensors = [make_chip_tensor_arg(one) for one in given.values()]
    execute_on_device(chip, stated, tensors, [factor], "a2a3sim")
    np.testing.assert_allclose(given["out"], expected["out"], rtol=1e-5)


def test_pto_run_runs_the_folder(folder: Path) -> None:
    write_program(folder, "tensormap_and_ringbuffer")
    assert run_case(folder).passed


@pytest.fixture(scope="module")
def compiler() -> KernelCompiler:
    return GeneratedKernelCompiler("a2a3sim", "tensormap_and_ringbuffer")


def test_headers_are_found_below_the_project_root(compiler: KernelCompiler, tmp_path: Path) -> None:
    include = '#include "task_interface/tensor.h"\n'
    source = tmp_path / "kernel.cpp"
    source.write_text(f'{2 * include}extern "C" void kernel_entry(int64_t*) {{ ChipTensor t; }}')
    folders = compiler.get_incore_include_dirs()
    for ordered in (folders, folders[::-1]):
        binary = compiler.compile_incore(source, "aiv", extra_include_dirs=ordered)
        assert b"kernel_entry" in binary


def test_a_mistake_shows_the_output_of_the_compiler(
    compiler: KernelCompiler, tmp_path: Path
) -> None:
    source = tmp_path / "kernel.cpp"
    source.write_text('#include "tensor.h"\nint x = unknown;\n')
    with pytest.raises(CompileError, match=r"kernel\.cpp:2: .*unknown.*\n.*said:\n"):
        compiler.compile_incore(source, "aic")
    with pytest.raises(UsageError, match="core_type is 'mix'; use 'aic' or 'aiv'"):
        compiler.compile_incore(source, "mix")
    with pytest.raises(UsageError, match="runtime='aicpu': use tensormap_and_"):
        compiler.compile_orchestration("aicpu", source)


def test_an_orchestration_may_have_another_entry(compiler: KernelCompiler, tmp_path: Path) -> None:
    source = tmp_path / "graph.cpp"
    source.write_text(
        '#include "pto_orchestration_api.h"\n'
        "static void part(const ChipTaskArgs& args) { (void)args; }\n"
        'extern "C" void build(const ChipTaskArgs& args) { part(args); }\n'
    )
    folders = compiler.get_orchestration_include_dirs("host_build_graph")
    assert any((Path(folder) / "pto_orchestration_api.h").is_file() for folder in folders)
    binary = compiler.compile_orchestration("host_build_graph", source)
    chip = ChipCallable.build([ArgDirection.IN], "build", binary)
    with Worker(platform="a2a3sim", runtime="host_build_graph") as worker:
        args = TaskArgs()
        args.add_tensor(make_tensor_arg(worker, np.zeros(1, np.float32)))
        worker.run(worker.register(chip), args)


def test_another_interface_is_named(compiler: KernelCompiler, tmp_path: Path) -> None:
    source = tmp_path / "graph.cpp"
    source.write_text(
        '#include "pto_orchestration_api.h"\n'
        'extern "C" void aicpu_orchestration_entry(const ChipStorageTaskArgs& args) {}\n'
    )
    written = r"written for the interface of March 2026 or later \(ChipStorageTaskArgs\)"
    with pytest.raises(CompileError, match=written):
        compiler.compile_orchestration("tensormap_and_ringbuffer", source)


def test_other_modules_that_pypto_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_ISA_ROOT", "/opt/pto-isa")
    assert ensure_pto_isa_root(verbose=True) == "/opt/pto-isa"
    assert parse_level("TIMING") == 25
    with pytest.raises(UsageError, match="'loud' is not a log level"):
        parse_level("loud")
    assert get_logger("simpler.worker").name == "simpler.worker"
    assert __build_commit__.startswith("ptorun-compat-simpler-")
    assert torch_dtype_to_datatype("torch.bfloat16") is DataType.BFLOAT16
    with pytest.raises(UsageError, match=r"torch\.qint8 is not a data type"):
        torch_dtype_to_datatype("torch.qint8")
    with pytest.raises(UnsupportedError, match="compute_golden is not available here; write"):
        from simpler_setup.goldens.paged_attention import compute_golden  # noqa: F401
    with pytest.raises(UnsupportedError, match="AccessMode is not available here; use create_buf"):
        from simpler.buffer import AccessMode  # noqa: F401


@pytest.mark.parametrize("tool", ["swimlane_converter", "strace_timing"])
def test_a_tool_names_the_command_in_its_place(tool: str) -> None:
    command = [sys.executable, "-m", f"simpler_setup.tools.{tool}"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert f"{tool} is not available here; `pto run --trace" in outcome.stderr
    with pytest.raises(UnsupportedError, match="`pto run --trace"):
        importlib.import_module(f"simpler_setup.tools.{tool}").main()
