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
