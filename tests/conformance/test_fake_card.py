"""Cases run through the backend table of the A2/A3 plugin on its fake driver and device process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native_builds import NativeBuild

from pto_core.errors import DeviceLostError

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "backend_a2a3"
EXAMPLE = ROOT / "examples" / "01_vector"
# The name is the label: results of the fake driver are never those of a card.
NAME = "fake_device"
MODULE = """
from pathlib import Path
from pto_core.interfaces import API_VERSION, BuildRecipe, Health, Option

def fixed(key, value):
    return Option(key, value, str, "fixed by the test", native=key.partition(".")[2])

class Chip:
    name = {name!r}
    api_version = API_VERSION
    capabilities = frozenset({capabilities!r})
    dlpack_device_type = 12

    def health(self):
        return Health(ok=True)

    def library(self):
        return Path({library!r})

    def build_recipe(self, kind):
        return BuildRecipe()

    def options(self):
        build = self.library().parents[2]
        return (
            fixed("fake_device.folder", str(build / "tests" / "fake_driver" / "fake")),
            fixed("fake_device.images", str(build / "native" / "device")),
            fixed("fake_device.fake", "1"),
            fixed("fake_device.pool_mib", "256"),
        )

plugin = Chip()
"""
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
with pto_core.open_device({name!r}, runtime="host_build_graph") as device:
    device.to_device(np.zeros(4))  # selects the device on this thread
    x, y, out = (Exported(np.full(4, value, "f4")) for value in (2, 3, 0))
    print(device.run(graph, x, y, out, 4).tasks, out.host())
    for wrong in (Exported(np.ones(4, "f4"), number=1), Exported(np.ones(4, "f4"), stride=2)):
        try:
            device.run(graph, wrong, y, out, 4)
        except pto_core.errors.UsageError as error:
            print(error)
"""
KILLER = """
#include <csignal>
#include <cstdint>

extern "C" void kernel_entry(int64_t*) {
  std::raise(SIGKILL);
}
"""


@pytest.fixture
def fake_device(
    stranger, native_build: NativeBuild, monkeypatch: pytest.MonkeyPatch, shared_cache: Path
):
    """Install the backend under another name; its driver starts the device process."""
    monkeypatch.setenv("PTO_CACHE_DIR", str(shared_cache))  # each variant is compiled once
    build = native_build(PACKAGE)
    process = build / "tests" / "device_process" / "device_process"
    folder = build / "native" / "device" / "installed"
    monkeypatch.setenv(
        "PTO_FAKE_DRIVER",
        f"memory_mib=512,process={process},libraries={folder},silicon=blocks=2 seed=5 duplicates=1",
    )
    monkeypatch.setenv("PTO2_RING_HEAP", str(1 << 20))
    library = build / "native" / "host" / "libpto_backend_a2a3.so"
    stranger.install("pto.backends", MODULE, NAME, library, {"threads"})
    paths = [str(stranger.folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return stranger


def run_case(folder: Path, runtime: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pto_core.cli", "run", folder, "-p", NAME, "-r", runtime],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    "runtime", ["aicpu_build_graph", "host_build_graph", "tensormap_and_ringbuffer"]
)
def test_a_case_runs_in_the_device_process(fake_device, runtime: str) -> None:
    result = run_case(EXAMPLE, runtime)
    assert result.returncode == 0, result.stderr
    assert f"passed ({NAME}, {runtime}" in result.stdout


def test_a_device_process_that_is_killed_is_a_lost_device(fake_device, tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(EXAMPLE, case)
    (case / "kernels" / "aiv" / "add.cpp").write_text(KILLER)
    result = run_case(case, "aicpu_build_graph")
    assert result.returncode == DeviceLostError.exit_code, result.stdout
    assert "code 507010: the task scheduler of the device is gone" in result.stderr + result.stdout


def test_the_run_maps_no_library_of_the_simulator(fake_device) -> None:
    output = fake_device.run_program(
        "from pathlib import Path\n"
        "import numpy as np\n"
        "import pto_core\n"
        f"with pto_core.open_device({NAME!r}, runtime='aicpu_build_graph') as device:\n"
        "    array = device.to_device(np.arange(1000.0))\n"
        "    print(array.to_host().sum())\n"
        "    maps = Path('/proc/self/maps').read_text()\n"
        "    print('libpto_backend_sim' in maps, 'libpto_backend_a2a3' in maps)\n"
    )
    assert output == "499500.0\nFalse True\n"


def test_a_python_orchestration_builds_its_graph_on_the_host(fake_device) -> None:
    kernel = EXAMPLE / "kernels" / "aiv" / "add.cpp"
    output = fake_device.run_program(
        "import numpy as np\n"
        "import pto_core\n"
        "from pto_core import CoreCallable, KernelSource\n"
        f"add = CoreCallable(KernelSource({str(kernel)!r}), 'aiv')\n"
        "def graph(rt, x, y, out):\n"
        "    rt.add_task(add, (x, y, out, x.shape[0]))\n"
        "x, y, out = np.arange(4, dtype='f4'), np.ones(4, 'f4'), np.zeros(4, 'f4')\n"
        f"with pto_core.open_device({NAME!r}, runtime='host_build_graph') as device:\n"
        "    print(device.run(graph, x, y, out).tasks, out.tolist())\n"
    )
    assert output == "1 [1.0, 2.0, 3.0, 4.0]\n"


def test_a_tensor_of_another_program_is_passed_as_its_address(
    fake_device, native_build: NativeBuild
) -> None:
    driver = native_build(PACKAGE) / "tests" / "fake_driver" / "fake" / "libacl_rt.so"
    kernel = EXAMPLE / "kernels" / "aiv" / "add.cpp"
    lines = fake_device.run_program(
        EXPORTER.format(driver=str(driver), name=NAME, kernel=str(kernel))
    ).splitlines()
    assert lines[0] == "1 [5.0, 5.0, 5.0, 5.0]"
    assert lines[1].startswith("argument 0 is on device 1, but the run is on device 0")
    assert lines[2].startswith("argument 0 is not C-contiguous")
