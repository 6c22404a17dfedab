"""The code of a device as AArch64 code: the device process runs in an emulator, the host does not.

The plugin's recipes build the libraries from the installed sources, as on a machine with a card.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from native_builds import CROSS, EMULATOR, NativeBuild, tool

from pto_core import plugins

pytestmark = pytest.mark.toolchain

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "backend_a2a3"
GRAPHS = Path(__file__).with_name("graph") / "run_graphs.py"
VARIANTS = tuple(record.name for record in plugins.installed("runtime"))
MEMBERS = """
    def build_recipe(self, kind):
        import os
        from dataclasses import replace
        from pto_backend_a2a3.device_code import aicpu_recipe

        if kind == "host_orchestration":
            return BuildRecipe()
        if kind in ("aic", "aiv"):
            recipe = aicpu_recipe("orchestration")
            if "PTO_TEST_LINKED" in os.environ:  # bare code, as a card runs it
                flags = ("-c", "-O2", "-ffreestanding", "-fno-asynchronous-unwind-tables")
                link = ("aarch64-linux-gnu-ld", "-Ttext=0", "-static", "-n", "--entry=kernel_entry")
                steps = ((*link, "{input}", "-o", "{output}"),)
                return replace(recipe, flags=flags, steps=steps)
            flags = (*recipe.flags, "-O2", "-fpermissive", "-Wno-attributes")
            return replace(recipe, flags=flags, ceilings={})
        return aicpu_recipe(kind)

    def device_libraries(self, options):
        import os
        from pto_backend_a2a3.device_code import CHIP, device_libraries, native_executor

        recipe = self.build_recipe("runtime")
        dispatcher, device = device_libraries(recipe)
        if "PTO_TEST_CHIP" in os.environ:
            device = device_libraries(recipe, CHIP)[1]
        return (dispatcher, device, native_executor(recipe))

    def options(self):
        build = self.library().parents[2]
        values = {
            "folder": str(build / "tests" / "fake_driver" / "fake"), "fake": "1", "pool_mib": "64"
        }
        return tuple(
            Option("fake_aarch64." + key, value, str, "fixed by the test", native=key)
            for key, value in values.items()
        )
"""
NAME = "fake_aarch64"
AARCH64 = 183  # the value of the ELF field e_machine
# A fused multiplication and addition would change the last bits.
KERNEL = """
#include <cstdint>
#include <cstring>

extern "C" void kernel_entry(int64_t* args) {
  const float* x = reinterpret_cast<const float*>(args[0]);
  float* out = reinterpret_cast<float*>(args[1]);
  for (int64_t i = 0; i < args[2]; ++i) {
    out[i] = x[i] * x[i] + out[i];
    out[i] = out[i] / (x[i] * 3.7f + 1) - static_cast<float>(i) * x[i];
  }
}
"""
SUBMIT = """
#include "runtime.h"

extern "C" int build(Runtime* runtime) {
  runtime->aicpu_build_api.publish_task(
      runtime, runtime->aicpu_build_api.add_task(
          runtime, runtime->orch_args, 3, 0, CoreType::AIV, 0));
  return 0;
}
"""
RUN_KERNEL = """
import hashlib
import sys
from pathlib import Path

import numpy as np

import pto_core
from pto_core import ChipCallable, CoreCallable, KernelSource
from pto_core.kernels import OrchestrationSource

folder = Path(sys.argv[1])
kernel = CoreCallable(KernelSource(folder / "kernel.cpp"), "aiv")
call = ChipCallable(OrchestrationSource(folder / "graph.cpp", "build"), {0: kernel})
for backend in sys.argv[2:]:
    x = np.random.default_rng(1).uniform(-2, 2, 4096).astype(np.float32)
    out = x[::-1].copy()
    with pto_core.open_device(backend, runtime="aicpu_build_graph") as device:
        device.run(call, x, out, x.size)
    print(hashlib.sha256(out.tobytes()).hexdigest())
"""


RUN_LINKED = """
import ctypes
import sys
from pathlib import Path

from pto_core import plugins
from pto_core.config import load_with_plugins
from pto_devkit import abi
from pto_devkit.native import NativeBackend, NativeRuntime
from pto_core.toolchain import Toolchain, device_options, runtime_artefacts

name, *sources = sys.argv[1:]
config = load_with_plugins({"backend": name, "runtime": "host_build_graph"})
backend, runtime = plugins.load_backend(name), plugins.load_runtime("host_build_graph")
toolchain = Toolchain(config)
options = device_options(toolchain, backend, config.native_options(name))
variant = NativeRuntime(
    runtime.library(), runtime.name, runtime_artefacts(toolchain, backend, runtime)
)
with NativeBackend(backend.library()).open(0, **options) as device:
    device.attach(variant)
    block = device.allocate(8)
    for source in sources:
        path = toolchain.build_kernel(Path(source), "aiv", backend.build_recipe("aiv"))
        kernel = device.load_kernel(0, abi.Core.AIV, path)
        device.start([kernel])
        task = abi.Task(0, -1, 1, 0, (ctypes.c_uint64 * 1)(block), 0)
        device.runtime_table.submit(device.runtime_handle, ctypes.byref(task))
        device.orchestration_done()
        device.wait()
        outcome = device.finish()
        assert outcome.status == abi.Status.OK, outcome.message
        print(int.from_bytes(device.copy_out(block, 8), "little"))
        device.unload_kernel(kernel)
    device.free(block)
"""


@pytest.fixture
def fake_aarch64(
    stranger,
    native_build: NativeBuild,
    monkeypatch: pytest.MonkeyPatch,
    shared_cache: Path,
    tmp_path: Path,
):
    """Install the backend under another name; its driver starts the emulator."""
    monkeypatch.setenv("PTO_CACHE_DIR", str(shared_cache))  # each library is compiled once
    process = native_build(PACKAGE, *CROSS, target="device_process") / "tests" / "device_process"
    emulator = tmp_path / "emulator"
    words = (tool(EMULATOR[0]), *EMULATOR[1:], str(process / "device_process"))
    emulator.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    emulator.chmod(0o755)
    installed = tmp_path / "installed"
    installed.mkdir()
    monkeypatch.setenv(
        "PTO_FAKE_DRIVER",
        f"memory_mib=256,process={emulator},libraries={installed},silicon=blocks=2 seed=5",
    )
    monkeypatch.setenv("PTO2_RING_HEAP", str(1 << 20))
    library = native_build(PACKAGE) / "native" / "host" / "libpto_backend_a2a3.so"
    stranger.install_backend(NAME, library, {"threads"}, MEMBERS)
    paths = [str(stranger.folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return stranger


def run(*arguments: str | Path) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout


@pytest.mark.parametrize("runtime", VARIANTS)
def test_graphs_of_the_kit_run_on_aarch64(fake_aarch64, runtime: str) -> None:
    label, machine, program = run(GRAPHS, NAME, runtime).splitlines()
    assert (label, int(machine)) == ("fake device", AARCH64)
    assert Path(program).name == EMULATOR[0]


def test_batch_paged_attention_on_aarch64(fake_aarch64) -> None:
    """The kernels call exp(), so the result has the tolerance of the case."""
    case = ROOT / "examples" / "06_batch_paged_attention"
    words = ("-p", NAME, "-r", "tensormap_and_ringbuffer", "--case", "ragged_2", "--json")
    output = run("-m", "pto_core.cli", "run", case, *words, "--set", "block_dim=2")
    (report,) = json.loads(output)["cases"]
    assert report["passed"], report
    assert report["process"]["machine"] == AARCH64


def test_results_on_aarch64_have_the_bytes_of_the_simulator(fake_aarch64, tmp_path: Path) -> None:
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    (tmp_path / "graph.cpp").write_text(SUBMIT)
    here, emulated = run("-c", RUN_KERNEL, tmp_path, "a2a3sim", NAME).split()
    assert here == emulated


def test_a_kernel_after_another_of_the_same_size_runs_its_own_code(
    fake_aarch64, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator keeps translated code, as a processor keeps instructions in its cache.

    It drops the code of a page to which the device writes. So the store has a page of its own.
    """
    monkeypatch.setenv("PTO_TEST_LINKED", "1")
    sources = [tmp_path / f"kernel_{number}.cpp" for number in (11, 22, 33)]
    for number, source in zip((11, 22, 33), sources, strict=True):
        source.write_text(
            '#include <stdint.h>\nextern "C" void kernel_entry(int64_t* args) {\n'
            '  __asm__ volatile("b 1f; .skip 8192; 1:");\n'
            f"  *reinterpret_cast<int64_t*>(args[0]) = {number};\n}}\n"
        )
    assert run("-c", RUN_LINKED, NAME, *sources).split() == ["11", "22", "33"]


def test_the_device_library_of_the_chip_runs_on_aarch64(
    fake_aarch64, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache maintenance, barriers and register accesses are instructions of AArch64."""
    settings = os.environ["PTO_FAKE_DRIVER"].replace("blocks=2", "blocks=1 plain=1")
    monkeypatch.setenv("PTO_FAKE_DRIVER", settings)
    monkeypatch.setenv("PTO_TEST_CHIP", "1")
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    (tmp_path / "graph.cpp").write_text(SUBMIT)
    here, emulated = run("-c", RUN_KERNEL, tmp_path, "a2a3sim", NAME).split()
    assert here == emulated
