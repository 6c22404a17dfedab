"""A plugin that `pto new plugin` writes satisfies its contract without changes.

The native plugins are built by CMake alone, without optimisation, next to their sources. No
installer is used; the packaging tests install such plugins.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from native_builds import tool

import pto_core

PAGE = Path(__file__).parents[1] / "docs" / "writing-a-plugin.md"
SHOWN = ("pyproject.toml", "CMakeLists.txt", "src/pto_backend_mychip/__init__.py")
# The minimum number of tests for each family: fewer means that a contract was not collected.
TESTS = {
    "backend": 70,
    "runtime": 30,
    "transport": 20,
    "scheduler": 3,
    "launcher": 7,
}
# The tests of a runtime on the new backend. There a submit waits for space that the backend must
# free. The tests of a backend do not check that.
WAITING_RUNTIME = """
from pto_devkit import RuntimeContract


class TestWaitingRuntime(RuntimeContract):
    backend = "pigeon"
    runtime = "tensormap_and_ringbuffer"
"""
# A C++ kernel, because the backend a2a3 runs no Python kernels.
KERNEL = """
#include <cstdint>
extern "C" void kernel_entry(int64_t* args) {{
  const auto* source = reinterpret_cast<const float*>(args[0]);
  auto* target = reinterpret_cast<float*>(args[1]);
  for (int64_t i = 0; i < args[2]; ++i) target[i] = source[i] {operation};
}}
"""
ON_DEVICE = """
import sys
import numpy as np
import pto_core
from pto_core import ChipCallable, CoreCallable, Direction, KernelSource
from pto_core.kernels import OrchestrationSource

shape = (np.float32, (64,))
arrays = (Direction.IN(*shape), Direction.OUT(*shape), Direction.SCALAR(int))
sources = enumerate(sys.argv[2:])
kernels = {i: CoreCallable(KernelSource(path), "aiv", arrays) for i, path in sources}
source, target = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
chip = ChipCallable(OrchestrationSource(sys.argv[1], "build"), kernels)
with pto_core.open_device("a2a3", runtime="pigeon") as device:
    report = device.run(chip, source, target, 64)
print((target == 2 * source + 1).all(), report.tasks, report.device.label)
"""


def new_plugin(folder: Path, family: str, name: str) -> Path:
    """Run the command that writes the folder of a plugin."""
    pto = Path(sys.executable).with_name("pto")
    command = [pto, "new", "plugin", family, name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / f"pto-{family}-{name}"


def install(project: Path, site: Path) -> None:
    """Write the metadata that an installer would create from the project's pyproject.toml."""
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    metadata = site / f"{stated['name'].replace('-', '_')}-{stated['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {stated['name']}\nVersion: {stated['version']}\n"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in stated["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text(points)


def build(project: Path, folder: Path) -> None:
    """Copy the native library into the project's package."""
    configure = (
        *(tool("cmake"), "-S", project, "-B", folder, "-G", "Ninja"),
        *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DCMAKE_CXX_FLAGS=-O0 -Werror"),
        "-DCMAKE_UNITY_BUILD=ON",
        f"-Dpto_core_DIR={Path(pto_core.__file__).parent / 'cmake'}",
    )
    for command in (
        configure,
        (tool("cmake"), "--build", folder, "--parallel", "2"),
        (tool("cmake"), "--install", folder, "--prefix", project / "src"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def run_tests(site: Path, *projects: Path) -> int:
    """Run the tests of all projects in one call; require that all pass; return their number."""
    paths = (site, *(each / "src" for each in projects), os.environ.get("PYTHONPATH", ""))
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull)
    folders = [str(each / "tests") for each in projects]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(site), *folders],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    summary = re.search(r"^(\d+) passed in ", done.stdout, re.MULTILINE)
    assert summary is not None, done.stdout[-500:]
    return int(summary[1])


@pytest.mark.parametrize("family", TESTS)
def test_a_new_plugin_keeps_its_contract_untouched(tmp_path: Path, family: str) -> None:
    project = new_plugin(tmp_path, family, "pigeon")
    if (project / "CMakeLists.txt").exists():
        build(project, tmp_path / "build")
    install(project, tmp_path / "site")
    if family == "backend":
        (project / "tests" / "test_waiting_runtime.py").write_text(WAITING_RUNTIME)
    assert run_tests(tmp_path / "site", project) >= TESTS[family]


@pytest.mark.usefixtures("fake_card")
@pytest.mark.toolchain
def test_a_new_runtime_runs_untouched_in_the_device_process(tmp_path: Path) -> None:
    project = new_plugin(tmp_path, "runtime", "pigeon")
    build(project, tmp_path / "build")
    install(project, tmp_path / "site")
    kernels = []
    for number, operation in enumerate(("* 2", "+ 1")):
        kernels.append(tmp_path / f"kernel_{number}.cpp")
        kernels[-1].write_text(KERNEL.format(operation=operation))
    graph = project / "tests" / "graph.cpp"
    paths = (tmp_path / "site", project / "src", os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", ON_DEVICE, graph, *kernels],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "True 2 fake device\n", done.stderr


def test_new_plugins_are_tested_in_one_call(tmp_path: Path) -> None:
    projects = [new_plugin(tmp_path, "transport", name) for name in ("pigeon", "raven")]
    for project in projects:
        install(project, tmp_path / "site")
    assert run_tests(tmp_path / "site", *projects) >= 2 * TESTS["transport"]


def test_the_page_shows_a_new_plugin_as_it_is(tmp_path: Path) -> None:
    project = new_plugin(tmp_path, "backend", "mychip")
    blocks = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name in SHOWN:
        assert (project / name).read_text() in blocks, f"{PAGE.name} shows another {name}"
