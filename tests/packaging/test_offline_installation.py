"""`./quickstart wheels DIR`, and `pip install --no-index --find-links DIR` in an empty environment.

The hints of `pto` are executed as printed: they must work, and must not use a package index.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "examples" / "01_vector"
INSTALL = "pip install --no-index --find-links DIR 'ptorun-core[sim]'"
LIMIT_S = 600


@dataclass(frozen=True)
class Offline:
    """A virtual environment whose pip knows the folder of wheels and an index without packages."""

    folder: Path
    wheels: Path

    def run(self, command: str, *, may_fail: bool = False) -> str:
        """Run a command that a user would type, with the folder for DIR; return its output."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "PYTHON", "PTO_")) and name != "VIRTUAL_ENV"
        }
        environment |= {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{environment['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"file://{self.folder}/no-such-index",
            "PTO_CACHE_DIR": str(self.folder / "cache"),
        }
        done = subprocess.run(
            ["bash", "-c", command.replace("DIR", str(self.wheels))],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def health(self) -> dict[str, str]:
        """Return the advised fix for each plugin; the text is empty if the plugin is healthy."""
        return {each["name"]: each["fix"] for each in json.loads(self.run("pto plugins --json"))}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("offline") / "wheels"
    command = [ROOT / "quickstart", "wheels", folder]
    subprocess.run(command, check=True, timeout=LIMIT_S, cwd=folder.parent)
    return folder


@pytest.fixture
def offline(tmp_path: Path, wheels: Path) -> Offline:
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return Offline(folder, wheels)


def pip_command(hint: str) -> str:
    found = re.search(r"`(pip install --no-index [^`]*)`", hint)
    assert found is not None, hint
    return found[1]


def test_the_folder_installs_everything_that_a_case_needs(offline: Offline) -> None:
    offline.run(INSTALL)
    offline.run("pip check")
    assert "passed (a2a3sim, tensormap_and_ringbuffer" in offline.run(f"pto run {CASE} -q -r pto2")
    assert set(offline.health().values()) == {""}


def test_the_readme_shows_these_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert INSTALL in lines
    assert "./quickstart wheels DIR" in [line.partition("#")[0].strip() for line in lines]


def test_the_hints_for_missing_and_damaged_plugins_work(offline: Offline) -> None:
    offline.run("pip install --no-index --find-links DIR ptorun-core")
    for command in (f"pto run {CASE}", "pto plugins", "pto doctor --json"):
        assert INSTALL in offline.run(command, may_fail=True), command
    offline.run(pip_command(offline.run(f"pto run {CASE}", may_fail=True)))
    offline.run("pip uninstall -y ptorun-runtime-pto2")
    offline.run(pip_command(offline.run(f"pto run {CASE} -r pto2", may_fail=True)))
    (library,) = offline.folder.rglob("libpto_backend_sim.so")
    library.unlink()
    offline.run(pip_command(offline.health()["a2a3sim"]))
    assert library.is_file()
    assert set(offline.health().values()) == {""}
