"""Plugins as third parties would install them: a folder with metadata, a module and a library."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "pto_core" / "include"
COMPILER = shlex.split(os.environ.get("CXX", "c++"))
LIBRARY_FLAGS = (
    *("-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{INCLUDE}"),
)

BACKEND_MODULE = """
from pathlib import Path
from pto_core.interfaces import API_VERSION, Health, BuildRecipe, Option

class Chip:
    name = {name!r}
    api_version = API_VERSION
    capabilities = frozenset({capabilities!r})

    def health(self):
        return Health(ok=True)

    def library(self):
        return Path({library!r})

    def build_recipe(self, kind):
        return None if kind == "runtime" else BuildRecipe()

    def options(self):
        return ()
{members}
plugin = Chip()
"""

TRANSPORT_MODULE = """
from pathlib import Path
from pto_core.interfaces import API_VERSION, Health

class Wire:
    name = {name!r}
    api_version = API_VERSION
    capabilities = frozenset({capabilities!r})
    frame_limit = 1 << 30

    def health(self):
        return Health(ok=True)

    def library(self):
        return Path({library!r})

plugin = Wire()
"""

RUNTIME_MODULE = """
from pathlib import Path
from pto_core.interfaces import API_VERSION, Health, OrchestrationBuild, ProgramInterface

class Variant:
    name = {name!r}
    api_version = API_VERSION
    capabilities = frozenset({capabilities!r})

    def health(self):
        return Health(ok=True)

    def library(self):
        return Path({library!r})

    def device_build(self):
        return None

    def program_interfaces(self):
        build = OrchestrationBuild(include_dirs=(), wrapper=Path("none.hpp"))
        return (ProgramInterface("fake", build, ()),)

    def options(self):
        return ()

plugin = Variant()
"""
# A test that takes longer counts as stuck. Some defects stop a transport; a working one may be slow
# on a busy machine.
STUCK_AFTER_S = 2.0
# Runs tests of a contract with each defect of a plugin in a process of its own. The processes are
# forks, so the imports are made once.
WITH_DEFECTS = """
import json
import os
import sys
from pto_devkit import {contract}
from pto_devkit.transports import processes

def failures(defect, tests):
    os.environ["PTO_BREAK"] = defect
    if defect != "nothing":
        processes.LIMIT_S = {stuck_after_s}

    class Subject({contract}):
{body}
    failed = {{}}
    for name in tests:
        test = getattr(Subject(), name)
        try:
            test()
        except Exception as failure:
            failed[name] = str(failure)[:500]
    return failed

found = {{}}
for defect, tests in json.loads(sys.argv[1]).items():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(failures(defect, tests)).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0, defect
    found[defect] = json.loads(os.read(reader, 1 << 16))
    os.close(reader)
print(json.dumps(found))
"""


@dataclass
class Stranger:
    """A folder of plugins that are unknown to the core; runs the kit over them."""

    folder: Path

    def compile(self, source: Path, *flags: str) -> Path:
        """Build a plugin's library from one source that uses only the ABI."""
        library = self.folder / f"lib{source.stem}.so"
        subprocess.run(
            [*COMPILER, *LIBRARY_FLAGS, "-o", str(library), str(source), "-ldl", *flags],
            check=True,
        )
        return library

    def install(
        self,
        group: str,
        module: str,
        name: str,
        library: Path,
        capabilities: set[str],
        members: str = "",
    ) -> None:
        """Write the module and the metadata of a distribution with one plugin."""
        package = f"stranger_{name}"
        text = module.format(
            name=name, capabilities=capabilities, library=str(library), members=members
        )
        (self.folder / f"{package}.py").write_text(text)
        metadata = self.folder / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {package}:plugin\n")

    def install_backend(
        self, name: str, library: Path, capabilities: set[str], members: str = ""
    ) -> None:
        """Install a backend. ``members``: source of methods that replace those of its class."""
        self.install("pto.backends", BACKEND_MODULE, name, library, capabilities, members)

    def install_runtime(self, name: str, library: Path, capabilities: set[str]) -> None:
        """Install a runtime variant."""
        self.install("pto.runtimes", RUNTIME_MODULE, name, library, capabilities)

    def install_transport(self, name: str, library: Path, capabilities: set[str]) -> None:
        """Install a native transport."""
        self.install("pto.transports", TRANSPORT_MODULE, name, library, capabilities)

    def run_program(self, source: str) -> str:
        """Run a Python program that finds the plugins; return its output."""
        answer = self._python("-c", source)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        paths = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def run_contract(
        self, contract: str, only: Iterable[str] = (), **attributes: str
    ) -> dict[str, str]:
        """Run a plugin's contract tests in a new process; return each test's failure, or "".

        ``only``: names of tests; by default all run.
        """
        body = "".join(f"    {key} = {value!r}\n" for key, value in attributes.items())
        test = self.folder / "test_contract.py"
        test.write_text(f"from pto_devkit import {contract}\n\n\nclass TestIt({contract}):\n{body}")
        report = self.folder / "report.xml"
        options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull)
        options = (*options, f"--rootdir={self.folder}", f"--confcutdir={self.folder}")
        tests = [f"{test}::TestIt::{name}" for name in only] or [str(test)]
        answer = self._python("-m", "pytest", *options, f"--junitxml={report}", *tests)
        assert answer.returncode in (0, 1), answer.stdout + answer.stderr
        outcomes = {}
        for case in ElementTree.parse(report).iter("testcase"):
            problems = [child.get("message", child.tag) for child in case]
            outcomes[case.get("name", "")] = "; ".join(problems)
        return outcomes

    def run_with_defects(
        self, contract: str, caught_by: dict[str, set[str]], **attributes: str
    ) -> dict[str, dict[str, str]]:
        """Run tests of a contract with each defect; return the failures of each defect by test.

        ``caught_by``: the tests that run with each defect. With the defect "nothing", all of these
        run: they find the defects, and not the wrapper.
        """
        body = "".join(f"        {key} = {value!r}\n" for key, value in attributes.items())
        program = WITH_DEFECTS.format(contract=contract, stuck_after_s=STUCK_AFTER_S, body=body)
        tests = {defect: sorted(names) for defect, names in caught_by.items()}
        tests["nothing"] = sorted(set().union(*caught_by.values()))
        answer = self._python("-c", program, json.dumps(tests))
        assert answer.returncode == 0, answer.stderr
        found: dict[str, dict[str, str]] = json.loads(answer.stdout.splitlines()[-1])
        return found


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """Return an empty folder for plugins."""
    return Stranger(tmp_path)


@pytest.fixture(scope="session")
def make_stranger() -> type[Stranger]:
    """Return the class of a folder for plugins, for fixtures that serve more than one test."""
    return Stranger


@pytest.fixture
def compiler() -> list[str]:
    """Return the command line of the host's C++ compiler."""
    return COMPILER


@pytest.fixture
def include() -> Path:
    """Return the folder of the ABI headers."""
    return INCLUDE
