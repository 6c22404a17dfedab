"""What only the fake driver of the A2/A3 plugin can show; test_card.py has the other cases."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native_builds import NativeBuild

from pto_core import plugins
from pto_core.errors import DeviceLostError, TaskFailedError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "01_vector"
PTO = Path(sys.executable).with_name("pto")
# A tensor of another program in the memory of the device, as torch_npu exports one.
EXPORTER = """
import ctypes
import numpy as np
import pto_core
from pto_core import CoreCallable, KernelSource
from pto_core.device.foreign_tensors import _Tensor

driver = ctypes.CDLL({driver!r})
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

class Exported:
    def __init__(self, values, number=0, stride=1):
        self.address = ctypes.c_void_p()
        self.values = values
        size = ctypes.c_size_t(values.nbytes)
        assert driver.aclrtMalloc(ctypes.byref(self.address), size, 0) == 0
        self.copy(self.address, values.ctypes.data, 1)
        self.tensor = _Tensor()
        self.tensor.data = self.address.value
        self.tensor.device_type, self.tensor.device_id, self.tensor.ndim = 12, number, 1
        self.tensor.shape = (ctypes.c_int64 * 1)(len(values))
        self.tensor.strides = (ctypes.c_int64 * 1)(stride)

    def copy(self, to, source, kind):
        size = ctypes.c_size_t(self.values.nbytes)
        source = ctypes.c_void_p(source)
        assert driver.aclrtMemcpy(ctypes.c_void_p(to) if isinstance(to, int) else to, size, source,
                                  size, kind) == 0

    def __dlpack_device__(self):
        return 12, self.tensor.device_id

    def __dlpack__(self):
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def host(self):
        self.copy(self.values.ctypes.data, self.address.value, 2)
        return self.values.tolist()

def graph(rt, x, y, out, count):
    rt.add_task(add, (x, y, out, count))

add = CoreCallable(KernelSource({kernel!r}), "aiv")
"""
TENSORS = """
with pto_core.open_device('a2a3', runtime="host_build_graph") as device:
    device.to_device(np.zeros(4))  # selects the device on this thread
    x, y, out = (Exported(np.full(4, value, "f4")) for value in (2, 3, 0))
    print(device.run(graph, x, y, out, 4).tasks, out.host())
    for wrong in (Exported(np.ones(4, "f4"), number=1), Exported(np.ones(4, "f4"), stride=2)):
        try:
            device.run(graph, wrong, y, out, 4)
        except pto_core.errors.UsageError as error:
            print(error)
    try:
        device.run(graph, x, y, out, 4, config=pto_core.CallConfig(enable_pmu=1))
    except pto_core.errors.UnsupportedError as error:
        print(error)
"""
# Work of another program on its stream, which a copy writes 0.3 s later.
STREAMS = """
def create_stream():
    handle = ctypes.c_void_p()
    assert driver.aclrtCreateStream(ctypes.byref(handle)) == 0
    return handle.value

def copy_later(tensor, values):
    size = ctypes.c_size_t(values.nbytes)
    source = ctypes.c_void_p(values.ctypes.data)
    stream = ctypes.c_void_p(Stream.npu_stream)
    assert driver.aclrtMemcpyAsync(tensor.address, size, source, size, 1, stream) == 0

def refused(**options):
    try:
        device.run(graph, x, y, out, 4, **options)
    except pto_core.errors.PtoError as error:
        print(type(error).__name__, error)

driver.pto_fake_configure(b"async_copy_ms=300")
with pto_core.open_device("a2a3", runtime="host_build_graph") as device:
    device.to_device(np.zeros(4))  # selects the device on this thread
    x, y, out = (Exported(np.full(4, value, "f4")) for value in (2, 3, 0))
    class Stream:
        npu_stream = create_stream()
    for stream, value in ((Stream, 7), (Stream.npu_stream, 8)):
        later = np.full(4, value, "f4")
        copy_later(x, later)
        device.run(graph, x, y, out, 4, stream=stream)
        print(out.host())
    copy_later(x, later)
    refused(stream=Stream, timeout_s=0.01)
    device.run(graph, x, y, out, 4, stream=Stream)
    for wrong in (0, "stream", True, 2**64):
        refused(stream=wrong)
    destroyed = create_stream()
    assert driver.aclrtDestroyStream(ctypes.c_void_p(destroyed)) == 0
    refused(stream=destroyed)
    assert driver.aclrtSetDevice(1) == 0
    refused(stream=create_stream())
    driver.pto_fake_fail(b"aclrtMemcpyAsync", 1, 507015, 1)
    copy_later(x, later)
    refused(stream=Stream)
    refused()
"""
# Programs of August 2026 whose kernels wait for each other.
COHORTS = """
from pathlib import Path
import numpy as np
import pto_core
from pto_core.chip import ChipCallable, CoreCallable, KernelSource, OrchestrationSource

folder = Path({folder!r})
kernels = {{
    number: CoreCallable(KernelSource(folder / "cohort_kernel.cpp", [f"-D{{macro}}"]), core)
    for number, (core, macro) in enumerate((("aiv", "__DAV_VEC__"), ("aic", "__DAV_CUBE__")))
}}
chip = ChipCallable(OrchestrationSource(folder / "cohorts.cpp"), kernels, ("inout", "scalar"))
with pto_core.open_device("a2a3", runtime="tensormap_and_ringbuffer", block_dim=2) as device:
    for program, written in ((0, 100), (1, 2)):  # many, often
        out = np.zeros(128, np.float32)
        report = device.run(chip, out, program)
        print(report.device.label, out.tolist() == [1.0] * written + [0.0] * (128 - written))
    try:
        device.run(chip, out, 3)  # too_many
    except pto_core.errors.OrchestrationError as error:
        print(error.code, error)
"""
KILLER = """
#include <csignal>
#include <cstdint>

extern "C" void kernel_entry(int64_t*) {
  std::raise(SIGKILL);
}
"""

PRINTER = """
#include "pto/kernel/print.hpp"

extern "C" void kernel_entry(int64_t* args) {
  const float* x = reinterpret_cast<const float*>(args[0]);
  const float* y = reinterpret_cast<const float*>(args[1]);
  float* out = reinterpret_cast<float*>(args[2]);
  pto_printf("x[0] = %g", x[0]);
  PTO_ASSERT(x[0] == 2, "y[0] is %g", y[0]);
  for (int64_t i = 0; i < args[3]; ++i) out[i] = x[i] + y[i];
}
"""

pytestmark = pytest.mark.usefixtures("fake_card")
RUNTIMES = tuple(record.name for record in plugins.installed("runtime"))
GRAPHS = Path(__file__).with_name("graph") / "run_graphs.py"


def run_case(folder: Path, runtime: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PTO, "run", folder, "-p", "a2a3", "-r", runtime, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def exporter(native_build: NativeBuild) -> str:
    build = native_build(ROOT / "plugins" / "backend_a2a3")
    driver = build / "tests" / "fake_driver" / "fake" / "libacl_rt.so"
    kernel = EXAMPLE / "kernels" / "aiv" / "add.cpp"
    return EXPORTER.format(driver=str(driver), kernel=str(kernel))


def test_every_output_has_the_label_of_the_fake_device() -> None:
    run = run_case(EXAMPLE, "host_build_graph", "-v")
    assert "passed (a2a3, host_build_graph, fake device 0)" in run.stdout, run.stderr
    assert re.search(r"process +\d+ of ELF machine (62|183)\n", run.stdout)
    for command in ("doctor", "plugins"):
        words = [PTO, command]
        wide = {**os.environ, "COLUMNS": "200"}
        listed = subprocess.run(words, capture_output=True, text=True, check=False, env=wide).stdout
        (line,) = [line for line in listed.splitlines() if re.search(r"backend +a2a3 ", line)]
        assert "fake device" in line


@pytest.mark.parametrize(
    ("example", "runtime"),
    [
        ("03_tiled_gemm", "aicpu_build_graph"),
        ("03_tiled_gemm", "host_build_graph"),
        ("06_batch_paged_attention", "tensormap_and_ringbuffer"),
        ("09_cube_vector_clusters", "tensormap_and_ringbuffer"),
    ],
)
def test_examples_with_kernels_for_a_card_run_on_the_fake_device(
    example: str, runtime: str
) -> None:
    run = run_case(ROOT / "examples" / example, runtime)
    assert f": passed (a2a3, {runtime}, fake device 0)" in run.stdout, run.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_graphs_of_the_kit_run_on_the_fake_device(runtime: str) -> None:
    command = [sys.executable, GRAPHS, "a2a3", runtime]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    label, _, program = result.stdout.splitlines()
    assert (label, Path(program).name) == ("fake device", "device_process")


def test_a_device_process_that_is_killed_is_a_lost_device(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(EXAMPLE, case)
    (case / "kernels" / "aiv" / "add.cpp").write_text(KILLER)
    result = run_case(case, "aicpu_build_graph")
    assert result.returncode == DeviceLostError.exit_code, result.stdout
    assert "failed (a2a3, aicpu_build_graph, fake device 0)" in result.stdout
    assert "code 507010: the task scheduler of the device is gone" in result.stderr + result.stdout


def test_texts_of_kernels_arrive_from_the_fake_device(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(EXAMPLE, case)
    (case / "kernels" / "aiv" / "add.cpp").write_text(PRINTER)
    run = run_case(case, "aicpu_build_graph", "--all")
    assert "constant: passed (a2a3, aicpu_build_graph, fake device 0)" in run.stdout, run.stderr
    printed = re.findall(r"pto: add \(task 0, AIV \d+, device 0\), add.cpp:8: (.*)", run.stderr)
    assert printed[0] == "x[0] = 2"
    value = re.fullmatch(r"x\[0\] = (-?0\.\d+)", printed[1])
    assert value is not None
    assert len(printed) == 2
    failure = r"assertion at add.cpp:9 failed: x\[0\] == 2 \((-?0\.\d+) == 2\): y\[0\] is -?0\."
    (operand,) = re.findall(rf"kernel 0 of task 0 on AIV [0-3]: the {failure}", run.stderr)
    assert abs(float(operand) - float(value[1])) < 1e-5
    assert run.returncode == TaskFailedError.exit_code


def test_the_report_names_a_process_that_is_not_this_one(stranger) -> None:
    """The library of the simulator is not mapped, and the device process exists."""
    kernel = str(EXAMPLE / "kernels" / "aiv" / "add.cpp")
    output = stranger.run_program(
        "import os, struct\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "import pto_core\n"
        "from pto_core import CoreCallable, KernelSource\n"
        f"add = CoreCallable(KernelSource({kernel!r}), 'aiv')\n"
        "def graph(rt, x, y, out):\n"
        "    rt.add_task(add, (x, y, out, x.shape[0]))\n"
        "x, y, out = np.arange(4, dtype='f4'), np.ones(4, 'f4'), np.zeros(4, 'f4')\n"
        "with pto_core.open_device('a2a3', runtime='host_build_graph') as device:\n"
        "    report = device.run(graph, x, y, out)\n"
        "    label, number, machine = report.device\n"
        "    program = Path(f'/proc/{number}/exe')\n"
        "    elf = program.read_bytes()[:20]\n"
        "    print(report.tasks, out.tolist(), label, program.resolve().name)\n"
        "    print(number != os.getpid(), struct.unpack('<H', elf[18:])[0] == machine)\n"
        "    maps = Path('/proc/self/maps').read_text()\n"
        "    print('libpto_backend_sim' in maps, 'libpto_backend_a2a3' in maps)\n"
    )
    assert output.splitlines() == [
        "1 [1.0, 2.0, 3.0, 4.0] fake device device_process",
        "True True",
        "False True",
    ]


def test_a_tensor_of_another_program_is_passed_as_its_address(
    stranger, native_build: NativeBuild
) -> None:
    lines = stranger.run_program(exporter(native_build) + TENSORS).splitlines()
    assert lines[0] == "1 [5.0, 5.0, 5.0, 5.0]"
    assert lines[1].startswith("argument 0 is on device 1, but the run is on device 0")
    assert lines[2].startswith("argument 0 is not C-contiguous")
    assert lines[3].startswith("the backend 'a2a3' has no counters of kernels")


def test_a_run_waits_for_a_stream_of_another_program(stranger, native_build: NativeBuild) -> None:
    lines = stranger.run_program(exporter(native_build) + STREAMS).splitlines()
    assert lines[:2] == ["[10.0, 10.0, 10.0, 10.0]", "[11.0, 11.0, 11.0, 11.0]"]
    assert lines[2].startswith("RunTimeoutError the run of 'graph' did not start: the work on its")
    for line in lines[3:7]:
        assert line.startswith("UsageError stream is ")
        assert "an object with the attribute 'npu_stream'" in line
    for line in lines[7:9]:
        assert line.startswith("UsageError aclrtStreamQuery failed with code 107017: ")
        assert line.endswith("Pass a stream of this device that was not destroyed")
    failed, after = lines[9:]
    assert failed.startswith("DeviceLostError aclrtStreamQuery failed with code 507015: ")
    assert "Earlier work on the stream that was passed to the run failed" in failed
    assert "simulator" not in failed
    assert after.startswith("DeviceLostError device 0 is unusable because of an earlier failure")
    assert "Earlier work on the stream" in after


def test_kernels_wait_for_each_other_on_the_fake_device(stranger) -> None:
    """Each core of the fake device is a thread, so all blocks of a task progress."""
    folder = ROOT / "plugins" / "runtime_pto2" / "tests" / "published_2026_08"
    many, often, refused = stranger.run_program(COHORTS.format(folder=str(folder))).splitlines()
    assert (many, often) == ("fake device True", "fake device True")
    assert refused.startswith("-7 ")
    assert "5 blocks must start at the same time, but the run has 4 AIV cores" in refused
