"""Environments in which only some of our distributions are installed, made of links.

The third-party packages and our distributions are those of the environment that runs the tests, so
such an environment takes a tenth of a second. test_environments.py installs wheels instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

OURS = "ptorun-"
CORE = "ptorun-core"


@dataclass(frozen=True)
class ReducedSet:
    """An environment that has the core, the named distributions and all third-party packages."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def run(self, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command whose programs are first searched in this environment."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {key: value for key, value in os.environ.items() if key[:6] != "PYTHON"}
        return subprocess.run(
            [str(word) for word in command],
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "pto"

    def pto(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(self.command, *arguments, **options)

    def json(self, *arguments: str) -> Any:
        done = self.pto(*arguments, "--json")
        return json.loads(done.stdout)


def make(folder: Path, *distributions: str) -> ReducedSet:
    """Make an environment with the core and ``distributions``."""
    venv.create(folder, symlinks=True)
    made = ReducedSet(folder)
    present = {CORE}
    wanted = [*distributions]
    while wanted:  # and what they require
        name = wanted.pop()
        present.add(name)
        required = (one for one in metadata.requires(name) or () if "extra ==" not in one)
        names = {re.match(r"[\w.-]+", one)[0] for one in required}
        wanted += [one for one in names if one.startswith(OURS) and one not in present]
    left_out = {
        file.parts[0]
        for distribution in metadata.distributions()
        if distribution.name.startswith(OURS) and distribution.name not in present
        for file in distribution.files or ()
    }
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        target = made.packages / entry.name
        if entry.name not in left_out and not target.exists():
            target.symlink_to(entry)
    for program in ("cmake", "ninja"):  # the same programs, so that builds of tests are shared
        (folder / "bin" / program).symlink_to(Path(sys.executable).with_name(program))
    _, _, code = Path(sys.executable).with_name("pto").read_text().partition("\n")
    made.command.write_text(f"#!{made.python}\n{code}")
    made.command.chmod(0o755)
    return made
