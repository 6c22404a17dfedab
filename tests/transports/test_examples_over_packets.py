"""The examples of level 3 and up run over the second transport too, with the same output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import packets
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def uses_local_workers(program: Path) -> bool:
    """Return whether a program uses Workers, and only on this host.

    A relay is spawned, and a transport in Python exists in forked children only.
    """
    text = program.read_text() if program.exists() else ""
    return "Worker(" in text and not re.search(r"\bhosts?=", text)


PROGRAMS = sorted(
    folder.name for folder in EXAMPLES.iterdir() if uses_local_workers(folder / "main.py")
)


def printed(example: str) -> str:
    """Return the output that the README of an example shows: the last block of the page."""
    return re.findall(r"```\n(.*?)```", (EXAMPLES / example / "README.md").read_text(), re.S)[-1]


def test_the_examples_are_found() -> None:
    assert [name[:2] for name in PROGRAMS] == ["11", "12", "13", "14", "15", "16"]


@pytest.mark.parametrize("example", PROGRAMS)
def test_an_example_prints_the_same(tmp_path: Path, example: str) -> None:
    packets.install(tmp_path)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example / "main.py")],
        env={**os.environ, "PYTHONPATH": path, "PTO_TRANSPORT": packets.NAME},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, printed(example)), done.stderr
