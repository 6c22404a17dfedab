"""The core uses a variant through the table of a proxy, and builds the variant for the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core import plugins
from pto_devkit.device_code import check_library
from pto_devkit.subjects import BackendSubject, healthy_backend

SOURCE = Path(__file__).with_name("elsewhere_backend.cpp")
VARIANTS = [record.name for record in plugins.installed("runtime")]
MEMBERS = """
    def build_recipe(self, kind):
        return BuildRecipe(flags=("-O0",))
"""
OPEN = """
import numpy as np
import pto_core
from pto_core import CoreCallable

def twice(source, target):
    np.multiply(source, 2, out=target)

def thirteen(*arguments):
    pass

KERNEL, WIDE = CoreCallable(twice, "aiv"), CoreCallable(thirteen, "aiv")

def graph(rt, source, target):
    between = rt.empty(source.shape, source.dtype)
    first = rt.add_task(KERNEL, (source, between))
    second = rt.add_task(KERNEL, (between, target))
    rt.add_successor(first, second)

def too_wide(rt, source, target):
    rt.add_task(WIDE, (source,) * 13)

source, target = np.arange(4.0), np.zeros(4)
with pto_core.open_device("elsewhere", runtime="host_build_graph") as device:
    report = device.run(graph, source, target)
    print(target.tolist(), report.tasks)
    try:
        device.run(too_wide, source, target)
    except pto_core.errors.CapacityError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def library(make_stranger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the backend once for all tests of this file."""
    working = plugins.load_backend(healthy_backend())
    folder = make_stranger(tmp_path_factory.mktemp("backend"))
    return folder.compile(SOURCE, f'-DPTO_WORKING_LIBRARY="{working.library()}"')


@pytest.fixture
def elsewhere(stranger, library: Path, monkeypatch: pytest.MonkeyPatch, folder_of_all: Path):
    """Install a backend that runs the variant elsewhere; return the folder of its distribution."""
    # All test processes share the cache, so that each variant is compiled once.
    monkeypatch.setenv("PTO_CACHE_DIR", str(folder_of_all / "elsewhere_cache"))
    capabilities = set(plugins.load_backend(healthy_backend()).capabilities)
    stranger.install_backend("elsewhere", library, capabilities, MEMBERS)
    return stranger


def test_the_core_uses_the_table_that_attach_returned(elsewhere, monkeypatch) -> None:
    """A Python orchestration of host_build_graph needs no submit path on the device."""
    monkeypatch.setenv("PTO_WITHOUT_SUBMITS", "1")
    result, refusal = elsewhere.run_program(OPEN).splitlines()
    assert result == "[0.0, 4.0, 8.0, 12.0] 2"
    assert "12" in refusal


# Invariant: The core and the kit use a runtime variant only through the table that attach()
# returned.
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_elsewhere_keeps_its_contract(elsewhere, variant: str) -> None:
    outcomes = elsewhere.run_contract("RuntimeContract", runtime=variant, backend="elsewhere")
    assert {test: problem for test, problem in outcomes.items() if problem} == {}
    assert len(outcomes) >= 20


def test_the_kit_observes_a_backend_with_a_probe_that_runs_elsewhere(elsewhere) -> None:
    """The backend refuses the library of this process, so it runs the probe of the device."""
    output = elsewhere.run_program(
        "from pto_devkit import BackendSubject\n"
        "from pto_devkit.dispatch import check_counters, check_each_task_runs_once\n"
        "backend = BackendSubject.load('elsewhere')\n"
        "check_each_task_runs_once(backend)\n"
        "check_counters(backend)\n"
        "print(len(backend.probe_files()[1]))\n"
    )
    assert output == "1\n"


def test_a_backend_that_runs_the_variant_elsewhere_keeps_its_contract(elsewhere) -> None:
    outcomes = elsewhere.run_contract("BackendContract", backend="elsewhere")
    assert {test: problem for test, problem in outcomes.items() if problem} == {}
    assert {"test_each_task_runs_once", "test_counters", "test_memory_of_a_run"} <= outcomes.keys()


def test_the_probe_follows_the_rules_for_variants_on_devices() -> None:
    library, _ = BackendSubject.load(healthy_backend()).probe_files()
    check_library(library)


def test_a_variant_without_sources_is_refused(elsewhere, monkeypatch) -> None:
    monkeypatch.setenv("PTO_BREAK", "nothing")
    working = plugins.load_runtime("host_build_graph")
    library = elsewhere.compile(
        SOURCE.parent / "broken" / "broken_runtime.cpp",
        f'-DPTO_WORKING_LIBRARY="{working.library()}"',
        '-DPTO_WORKING_VARIANT="host_build_graph"',
    )
    elsewhere.install_runtime("broken", library, {"explicit_edges"})
    refusal = elsewhere.run_program(
        "import pto_core\n"
        "try:\n"
        "    pto_core.open_device('elsewhere', runtime='broken')\n"
        "except pto_core.errors.UnsupportedError as error:\n"
        "    print(error)\n"
    )
    assert "'elsewhere' runs the runtime on its device" in refusal
    assert "'broken' runs in the host process only" in refusal


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "host_build_graph"])
def test_a_python_orchestration_needs_the_submit_path(elsewhere, monkeypatch, variant) -> None:
    monkeypatch.setenv("PTO_WITHOUT_SUBMITS", "1")
    refusal = elsewhere.run_program(
        "import pto_core\n"
        "def graph(rt):\n"
        "    pass\n"
        f"with pto_core.open_device('elsewhere', runtime={variant!r}) as device:\n"
        "    try:\n"
        "        device.run(graph)\n"
        "    except pto_core.errors.UnsupportedError as error:\n"
        "        print(error)\n"
    )
    assert refusal.startswith("'graph' is a Python orchestration, and the backend 'elsewhere' runs")
    assert f"the runtime '{variant}' on its device" in refusal
    assert "write it in C++" in refusal
