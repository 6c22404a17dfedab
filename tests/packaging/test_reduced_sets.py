"""With some plugins installed, those are the defaults, and errors name the missing distribution."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import packets
import pytest
from reduced_sets import ReducedSet, make

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "examples" / "01_vector"
PROGRAM = """
import numpy as np
from pto_core import Graph, Out, kernel, open_device

@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7

def graph(rt: Graph, out: Out) -> None:
    rt.submit(fill, out)

with open_device() as device:
    device.run(graph, out := np.zeros(4))
print(out.sum())
"""
WORKER = """
from pto_core import Out, Worker, task

@task
def fill(out: Out) -> None:
    out[:] = 7

with Worker(level=3, num_sub_workers=1) as worker:
    out = worker.shared_array((4,))
    with worker.session() as s:
        s.submit(fill, out)
    print(out.sum())
"""
# A fake plugin is chosen, but not imported.
CHOSEN = "from pto_core.config import load_core; print(load_core()[{family!r}])"
# What the cache of compiled sources depends on.
COMPILED_WITH = """
from pto_core import plugins
from pto_core.interfaces import abi_include_dir
recipe = plugins.load_backend("a2a3sim").build_recipe("aiv")
print(abi_include_dir(), recipe, plugins.load_runtime("pto2").program_interfaces())
"""
FAMILIES = {
    "backend": ("a2a3sim", "ptorun-backend-sim"),
    "runtime": ("host_build_graph", "ptorun-runtime-hbg"),
    "transport": ("shm", "ptorun-transport-shm"),
}


@pytest.fixture(scope="module")
def pto2(tmp_path_factory: pytest.TempPathFactory) -> ReducedSet:
    folder = tmp_path_factory.mktemp("pto2") / "environment"
    return make(folder, "ptorun-backend-sim", "ptorun-devkit", "ptorun-runtime-pto2")


def installs(distribution: str, text: str) -> bool:
    """Return whether a message recommends to install this distribution and nothing else."""
    return f"pip install --no-index --find-links DIR {distribution}" in text and "[sim]" not in text


def test_the_only_runtime_is_the_default_of_each_command(pto2: ReducedSet, tmp_path: Path) -> None:
    settings = pto2.json("config")["settings"]
    assert settings["runtime"] == {
        "value": "tensormap_and_ringbuffer",
        "origin": "default, the only installed runtime",
    }
    assert settings["backend"] == {"value": "a2a3sim", "origin": "default"}
    ran = pto2.pto("run", CASE, "-q")
    assert ran.stdout == "constant: passed (a2a3sim, tensormap_and_ringbuffer, device 0)\n"
    program = pto2.run(pto2.python, "-c", PROGRAM)
    assert (program.stdout, program.stderr) == ("28.0\n", "")
    assert pto2.json("doctor")["works"]
    assert pto2.pto("new", "case", "mine", cwd=tmp_path).returncode == 0
    assert "passed (a2a3sim, tensormap" in pto2.pto("run", "mine", "-q", cwd=tmp_path).stdout


def test_an_environment_made_of_links_uses_the_artefacts_of_the_installed_one(
    pto2: ReducedSet,
) -> None:
    there = pto2.run(pto2.python, "-c", COMPILED_WITH)
    here = subprocess.run(
        [sys.executable, "-c", COMPILED_WITH], capture_output=True, text=True, check=True
    )
    assert (there.stdout, there.stderr) == (here.stdout, "")


def test_the_error_for_a_missing_plugin_names_its_distribution(pto2: ReducedSet) -> None:
    for name in ("host_build_graph", "aicpu_build_graph"):
        done = pto2.pto("run", CASE, "-r", name)
        assert (done.returncode, installs("ptorun-runtime-hbg", done.stderr)) == (5, True)
    done = pto2.run(pto2.python, "-c", WORKER)
    assert installs("ptorun-transport-shm", done.stderr)
    findings = {finding["name"]: finding for finding in pto2.json("doctor")["findings"]}
    assert installs("ptorun-transport-shm", findings["transport shm"]["fix"])
    assert "runtime host_build_graph" not in findings


REMOTE = """
import pto_core
from pto_core import *
from pto_core.errors import PluginUnavailableError

for place in ({"host": "tcp://127.0.0.1:1"}, {"hosts": Hosts.on("local", 1)}):
    try:
        with Worker(level=4) as worker:
            worker.add_worker(Worker(level=3, num_sub_workers=1, **place))
            worker.init()
    except PluginUnavailableError as error:
        print(error)
try:
    pto_core.RemoteTensorRef
except PluginUnavailableError as error:
    print(error)
"""


def test_without_the_remote_transport_the_messages_name_it(tmp_path: Path) -> None:
    some = make(tmp_path / "environment", "ptorun-transport-shm")
    done = some.run(some.python, "-c", REMOTE)
    lines = done.stdout.splitlines()
    assert (len(lines), done.stderr) == (3, "")
    lines += [some.pto(*words).stderr for words in (("agent", "serve"), ("keys", "new", "x"))]
    assert all(installs("ptorun-transport-zmq", line) for line in lines)


def test_without_a_backend_the_messages_name_that_of_the_simulator(tmp_path: Path) -> None:
    some = make(tmp_path / "environment", "ptorun-devkit", "ptorun-runtime-hbg")
    listed = some.pto("plugins")
    assert listed.returncode == 0
    for text in (listed.stdout, some.pto("run", CASE).stderr, some.pto("doctor", "--json").stdout):
        assert installs("ptorun-backend-sim", text)
    done = some.run(some.python, "-c", "from pto_devkit import RuntimeContract\n"
                    "class TestIt(RuntimeContract): runtime = 'host_build_graph'")  # fmt: skip
    assert installs("ptorun-backend-sim", done.stderr)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_only_plugin_of_others_is_the_default_of_its_family(
    family: str, tmp_path: Path
) -> None:
    name, distribution = FAMILIES[family]
    most = {"ptorun-runtime-pto2", *(each for _, each in FAMILIES.values())}
    hides = {distribution, "ptorun-runtime-pto2"} if family == "runtime" else {distribution}
    some = make(tmp_path / "environment", *sorted(most - hides))
    choice = some.python, "-c", CHOSEN.format(family=family)
    assert some.run(*choice).stdout == f"{name}\n"
    for number, chosen in enumerate(("first", name), start=1):
        metadata = some.packages / f"other_{number}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: other-{number}\nVersion: 1\n"
        )
        word = ("first", "second")[number - 1]
        (metadata / "entry_points.txt").write_text(f"[pto.{family}s]\n{word} = absent:plugin\n")
        assert some.run(*choice).stdout == f"{chosen}\n"


def test_a_worker_uses_the_only_transport(tmp_path: Path) -> None:
    some = make(tmp_path / "environment", "ptorun-transport-zmq")
    packets.install(some.packages)
    done = some.run(some.python, "-c", WORKER)
    assert (done.stdout, done.stderr) == ("28.0\n", "")


def test_a_core_without_plugins_recommends_the_whole_laptop_set(tmp_path: Path) -> None:
    core = make(tmp_path / "environment")
    assert "DIR 'ptorun-core[sim]'`" in core.pto("run", CASE).stderr
    assert json.loads(core.pto("plugins", "--json").stdout)
