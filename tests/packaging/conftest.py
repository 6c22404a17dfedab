"""A wheelhouse that is built once, and new environments that install only from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
FOLDERS = tuple(
    path.parent
    for path in (
        ROOT / "pto_core" / "pyproject.toml",
        *sorted(ROOT.glob("plugins/*/pyproject.toml")),
    )
)
# Requirements that a build backend adds to those in pyproject.toml.
BUILD_PROGRAMS = ("cmake", "ninja")
# The packages that are needed to run a plugin's contract tests.
TEST_PROGRAMS = ("pytest",)
# These tests check the content and requirements of wheels, not the speed of their code.
COMPILED_SOON = "-DCMAKE_C_FLAGS_RELEASE=-O0 -DCMAKE_CXX_FLAGS_RELEASE=-O0"


@dataclass(frozen=True)
class Built:
    """One package as an installer sees it: its sdist, and the wheel built from that sdist."""

    folder: Path
    distribution: str
    requirements: frozenset[str]
    sdist: Path
    wheel: Path

    @property
    def import_name(self) -> str:
        return self.distribution.replace("ptorun-", "pto_").replace("-", "_")


@dataclass(frozen=True)
class Wheelhouse:
    """A folder with every wheel that is needed to build and install our packages."""

    folder: Path
    packages: tuple[Built, ...]

    def package(self, distribution: str) -> Built:
        return next(p for p in self.packages if p.distribution == distribution)


@dataclass(frozen=True)
class Environment:
    """A new virtual environment that can install only from the wheelhouse.

    It has no pip; the pip of the environment that runs these tests installs into it.
    """

    folder: Path
    wheelhouse: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        return run_offline(self.wheelhouse, command, cwd or self.folder, path=self.folder / "bin")

    def pip(self, *arguments: str | Path) -> str:
        return self.run(sys.executable, "-m", "pip", "--python", self.python, *arguments)

    def installed(self) -> set[str]:
        listing = self.pip("list", "--format=freeze")
        names = {line.partition("==")[0] for line in listing.splitlines() if "==" in line}
        return {normal(name) for name in names}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required_name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None, requirement
    return normal(match[0])


def run_offline(
    wheelhouse: Path, command: tuple[str | Path, ...], cwd: Path, path: Path | None = None
) -> str:
    """Run a command whose pip can use only the wheelhouse, also in build isolation."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "PTO_")) and name != "VIRTUAL_ENV"
    }
    environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheelhouse),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "0",  # for pip, "0" means: do not compile to bytecode
        "CMAKE_ARGS": COMPILED_SOON,
    }
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    return run(command, cwd, environment)


def run(command: tuple[str | Path, ...], cwd: Path, environment: dict[str, str] | None) -> str:
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    words = " ".join(str(word) for word in command)
    assert result.returncode == 0, f"{words}\n{result.stdout[-6000:]}\n{result.stderr[-6000:]}"
    return result.stdout


def third_party() -> set[str]:
    names = {*BUILD_PROGRAMS, *TEST_PROGRAMS}
    for folder in FOLDERS:
        pyproject = tomllib.loads((folder / "pyproject.toml").read_text())
        declared = pyproject["build-system"]["requires"] + pyproject["project"]["dependencies"]
        names |= {required_name(requirement) for requirement in declared}
    return {name for name in names if not name.startswith("ptorun-")}


def build_package(folder: Path, house: Path) -> Built:
    """Build the sdist, then build the wheel from it in build isolation outside the checkout.

    The results are placed in ``house``, which contains the build requirements.
    """
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    pack = (sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", house, folder)
    run_offline(house, pack, house)
    sdist = house / f"{stem}.tar.gz"
    wheel_command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", house, sdist)
    run_offline(house, wheel_command, house)
    (wheel,) = house.glob(f"{stem}-*.whl")
    requirements = frozenset(required_name(text) for text in project["dependencies"])
    return Built(folder, project["name"], requirements, sdist, wheel)


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Wheelhouse:
    house = tmp_path_factory.mktemp("wheelhouse")
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
    run((*download, "-d", house, "-c", CONSTRAINTS, *sorted(third_party())), house, None)
    packages = tuple(build_package(folder, house) for folder in FOLDERS)
    return Wheelhouse(house, packages)


def make_environment(folder: Path, wheelhouse: Wheelhouse) -> Environment:
    run((sys.executable, "-m", "venv", "--without-pip", folder), folder.parent, None)
    return Environment(folder, wheelhouse.folder)


@pytest.fixture
def environment(tmp_path: Path, wheelhouse: Wheelhouse) -> Environment:
    return make_environment(tmp_path / "environment", wheelhouse)


@pytest.fixture(scope="session")
def environment_with(
    tmp_path_factory: pytest.TempPathFactory, wheelhouse: Wheelhouse
) -> Callable[..., Environment]:
    """Return the environment in which only the named requirements were installed.

    Equal requirements share one environment, so a test must not install anything into it.
    """
    made: dict[tuple[str, ...], Environment] = {}

    def with_(*requirements: str) -> Environment:
        if requirements not in made:
            folder = tmp_path_factory.mktemp("with") / "environment"
            made[requirements] = make_environment(folder, wheelhouse)
            made[requirements].pip("install", *requirements)
        return made[requirements]

    return with_
