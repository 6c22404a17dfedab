"""The core uses a variant through the table of a proxy, and builds the variant for the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core import plugins
from pto_core.testing.subjects import healthy_backend

SOURCE = Path(__file__).with_name("elsewhere_backend.cpp")
VARIANTS = [record.name for record in plugins.runtimes()]
MODULE = """
from pathlib import Path
from pto_core.interfaces import API_VERSION, BuildRecipe, Health

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
        return ()

plugin = Chip()
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


def install_elsewhere(stranger, *flags: str):
    """Install a backend that runs the variant elsewhere; return the folder of its distribution."""
    working = plugins.load_backend(healthy_backend())
    library = stranger.compile(SOURCE, f'-DPTO_WORKING_LIBRARY="{working.library()}"', *flags)
    stranger.install("pto.backends", MODULE, "elsewhere", library, set(working.capabilities))
    return stranger


@pytest.fixture(autouse=True)
def _one_cache(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> None:
    """Compile each variant once for all tests of this file."""
    monkeypatch.setenv("PTO_CACHE_DIR", str(shared_cache))


@pytest.fixture
def elsewhere(stranger):
    """Install the backend with a whole proxy."""
    return install_elsewhere(stranger)


def test_the_core_uses_the_table_that_attach_returned(elsewhere) -> None:
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


def test_a_variant_without_sources_is_refused(elsewhere) -> None:
    working = plugins.load_runtime("host_build_graph")
    library = elsewhere.compile(
        SOURCE.parent / "broken" / "broken_runtime.cpp",
        "-DPTO_BREAK=nothing",
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


def test_a_python_orchestration_needs_the_submit_path(stranger) -> None:
    elsewhere = install_elsewhere(stranger, "-DPTO_WITHOUT_SUBMITS")
    refusal = elsewhere.run_program(
        "import pto_core\n"
        "def graph(rt):\n"
        "    pass\n"
        "with pto_core.open_device('elsewhere', runtime='host_build_graph') as device:\n"
        "    try:\n"
        "        device.run(graph)\n"
        "    except pto_core.errors.UnsupportedError as error:\n"
        "        print(error)\n"
    )
    assert refusal.startswith("'graph' is a Python orchestration, and the backend 'elsewhere' runs")
    assert "write it in C++" in refusal
