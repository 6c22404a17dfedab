"""Each package in a new environment with only the core and its declared dependencies."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.toolchain

CORE = "ptorun-core"
PLUGINS = {
    "ptorun-backend-sim": ("load_backend", "a2a3sim", "pto_runtime_hbg"),
    "ptorun-runtime-hbg": ("load_runtime", "host_build_graph", "pto_backend_sim"),
    "ptorun-runtime-pto2": ("load_runtime", "tensormap_and_ringbuffer", "pto_runtime_hbg"),
    "ptorun-transport-shm": ("load_transport", "shm", "pto_backend_sim"),
    "ptorun-transport-zmq": ("load_remote_transport", "zmq", "pto_transport_shm"),
}
INSIGHT = "ptorun-insight"

DEVICES = {"ptorun-backend-a2a3": "a2a3"}  # plugins that need a device
RAY = "ptorun-launcher-ray"  # it needs Ray, which is an extra
DEVKIT = "ptorun-devkit"

DIAMOND = """
import numpy as np
import pto_core

@pto_core.kernel(core="aiv")
def add(a, b, out):
    np.add(a, b, out=out)

def graph(rt, a, b, c):
    rt.add_task(add, (a, b, c))

a = np.full((128, 128), 2, np.float32)
c = np.zeros_like(a)
with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
    device.run(graph, a, a, c)
print(float(c.min()), float(c.max()))
"""


def closure(wheelhouse, environment, distribution):
    """Return the requirements in the metadata of the installed distributions."""
    program = (
        "import re, sys\n"
        "from importlib.metadata import requires\n"
        "todo, seen = [sys.argv[1]], set()\n"
        "while todo:\n"
        "    name = re.sub(r'[-_.]+', '-', todo.pop()).lower()\n"
        "    if name in seen: continue\n"
        "    seen.add(name)\n"
        "    todo += [re.match(r'[\\w.-]+', r)[0] for r in requires(name) or ()\n"
        "             if not re.search('extra ==|python_version <|implementation_name ==', r)]\n"
        "print(*seen)\n"
    )
    return set(environment.run(environment.python, "-c", program, distribution).split())


@pytest.mark.parametrize("distribution", [CORE, *PLUGINS, *DEVICES, RAY, DEVKIT, INSIGHT])
def test_a_package_installs_with_its_declared_dependencies_alone(
    wheelhouse, environment_with, distribution
):
    environment = environment_with(distribution)
    environment.pip("check")
    assert environment.installed() == closure(wheelhouse, environment, distribution)
    built = wheelhouse.package(distribution)
    environment.run(environment.python, "-c", f"import {built.import_name}")


def test_the_core_alone_has_a_command_and_no_plugins(environment_with):
    environment = environment_with(CORE)
    usage = environment.run(environment.folder / "bin" / "pto", "--help")
    for provider in ("devkit", "insight", "transport-zmq"):
        assert f"(needs ptorun-{provider})" in usage
    program = (
        "from pto_core.cli.main import load\n"
        "from pto_core.errors import PluginUnavailableError\n"
        "try:\n"
        "    load('new')\n"
        "except PluginUnavailableError as error:\n"
        "    print(error)\n"
    )
    assert "--find-links DIR ptorun-devkit" in environment.run(environment.python, "-c", program)
    listing = (
        "from pto_core.plugins import installed; print(*map(installed, ('backend', 'runtime')))"
    )
    assert environment.run(environment.python, "-c", listing).strip() == "[] []"


@pytest.mark.parametrize("distribution", PLUGINS)
def test_a_plugin_loads_without_the_others(environment_with, distribution):
    load, name, other = PLUGINS[distribution]
    environment = environment_with(distribution)
    program = (
        "import importlib.util, pto_core.plugins as plugins\n"
        f"plugin = plugins.{load}({name!r})\n"
        "assert not hasattr(plugin, 'library') or plugin.library().is_file()\n"
        f"assert importlib.util.find_spec({other!r}) is None\n"
        "print(plugin.name)\n"
    )
    assert environment.run(environment.python, "-c", program).strip() == name


@pytest.mark.parametrize("distribution", DEVICES)
def test_a_plugin_without_its_device_states_what_is_missing(environment_with, distribution):
    environment = environment_with(distribution)
    program = (
        "import pto_core.plugins as plugins\n"
        "from pto_core.errors import BackendUnavailableError\n"
        "try:\n"
        f"    plugin = plugins.load_unopened('backend', {DEVICES[distribution]!r})\n"
        "    assert plugin.library().is_file()\n"
        f"    plugins.load_backend({DEVICES[distribution]!r})\n"
        "except BackendUnavailableError as error:\n"
        "    print(error)\n"
    )
    assert "cannot be loaded" in environment.run(environment.python, "-c", program)


def test_the_launcher_for_ray_is_listed_without_ray_and_names_the_command(environment_with):
    environment = environment_with(RAY)
    listed = environment.run(environment.folder / "bin" / "pto", "plugins", "--json")
    (ray,) = (plugin for plugin in json.loads(listed) if plugin["name"] == "ray")
    assert (ray["healthy"], ray["reason"]) == (False, "Ray is not installed")
    assert ray["fix"] == "pip install 'ray>=2.60'"


def test_a_plugins_sdist_builds_without_isolation_against_an_installed_core(
    wheelhouse, environment_with, tmp_path
):
    """The build runs outside the checkout, in an environment that has the core and no plugin.

    The wheelhouse builds each sdist in isolation, against a core that is a build requirement. The
    smallest native plugin suffices for a build without isolation.
    """
    environment = environment_with(CORE, "scikit-build-core", "cmake", "ninja")
    built = wheelhouse.package("ptorun-transport-shm")
    environment.pip("wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, built.sdist)
    assert (tmp_path / built.wheel.name).is_file()
    ours = {name for name in environment.installed() if name.startswith("ptorun-")}
    assert ours == {CORE}


WITHOUT_INSIGHT = (
    DIAMOND
    + """
from pto_core.errors import PluginUnavailableError
with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
    for asked in ({"trace": 1}, {"accesses": True}):
        try:
            device.run(graph, a, a, c, **asked)
        except PluginUnavailableError as error:
            print(error)
"""
)


def test_without_the_package_for_traces_programs_run_and_traces_name_it(environment_with):
    environment = environment_with("ptorun-backend-sim", "ptorun-runtime-hbg")
    result, *errors = environment.run(environment.python, "-c", WITHOUT_INSIGHT).splitlines()
    assert result == "4.0 4.0"
    assert len(errors) == 2
    assert all("are in ptorun-insight, which is not installed" in error for error in errors)


def test_the_laptop_set_runs_a_program(environment_with):
    environment = environment_with(f"{CORE}[sim]")
    ours = {name for name in environment.installed() if name.startswith("ptorun-")}
    assert ours == {CORE, INSIGHT, *PLUGINS} - {"ptorun-transport-zmq"}
    assert environment.run(environment.python, "-c", DIAMOND).strip() == "4.0 4.0"
