"""Users' programs pass mypy --strict and pyright, and both find the errors of bad programs.

Both checkers read the installed packages, as they do for a user. The programs are those of the
README, all Python files of the examples, and two programs of this folder. In ``rejected.py`` the
lines with an error are marked. In ``accepted.py`` a comment says what ``reveal_type`` must show;
``Array`` stands for ``ndarray[tuple[Any, ...], dtype[Any]]``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
SETTINGS = Path(__file__).with_name("mypy.ini")
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/golden.py")) + sorted(
    path.parent for path in ROOT.glob("examples/*/main.py")
)
MYPY_LINE = re.compile(r"^(.+?):(\d+): (error|note): (.*)$", re.MULTILINE)
REVEALED = re.compile(r'(?:Revealed type|Type of ".*") is "(.*)"', re.DOTALL)
ARRAY = "ndarray[tuple[Any, ...], dtype[Any]]"

LIMIT_S = 1200
"""The time limit of a checker, which runs in the time that native tests leave."""

Messages = list[tuple[int, str, str]]
"""For each message: its line, ``"error"`` or another kind, and its text."""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=cwd, timeout=LIMIT_S
    )


def mypy(path: Path, cache: Path) -> Messages:
    """Check a file, or all files of a folder, as a separate project."""
    folder, target = (path, ".") if path.is_dir() else (path.parent, path.name)
    options = ("--strict", "--explicit-package-bases", f"--cache-dir={cache}")
    result = run("mypy", f"--config-file={SETTINGS}", *options, target, cwd=folder)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    found = [(int(line), kind, text) for _, line, kind, text in MYPY_LINE.findall(result.stdout)]
    assert result.returncode == any(kind == "error" for _, kind, _ in found), result.stdout
    return found


def pyright(path: Path, _: Path) -> Messages:
    folder = path if path.is_dir() else path.parent
    result = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(path), cwd=folder)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    answer = json.loads(result.stdout)
    assert answer["summary"]["filesAnalyzed"] > 0
    return [
        (one["range"]["start"]["line"] + 1, one["severity"], one["message"])
        for one in answer["generalDiagnostics"]
    ]


Checker = Callable[[Path, Path], Messages]
both = pytest.mark.parametrize("check", [mypy, pyright])


def errors(messages: Messages) -> list[tuple[int, str]]:
    return [(line, text) for line, kind, text in messages if kind in ("error", "warning")]


def marked(path: Path, pattern: str) -> dict[int, str]:
    """Return the first group of each match of the pattern, by line."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return {number: match[1] for number, line in lines if (match := re.search(pattern, line))}


def plain(revealed: str) -> str:
    """Return a type as both checkers would show it without module names."""
    names = re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed.replace("\n", " "))
    return re.sub(r"\[\((.*)\)((?:, \w+)*)\]", r"[[\1]\2]", names).replace(ARRAY, "Array")


@both
def test_programs_of_the_readme_are_well_typed(check: Checker, cache: Path, tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(programs) >= 2
    for number, program in enumerate(programs):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program)
        assert errors(check(path, cache)) == []


@pytest.mark.parametrize("folder", sorted(set(EXAMPLES)), ids=lambda folder: folder.name)
def test_an_example_passes_mypy(folder: Path, cache: Path) -> None:
    assert errors(mypy(folder, cache)) == []


def test_all_examples_pass_pyright(cache: Path) -> None:
    assert errors(pyright(ROOT / "examples", cache)) == []


@both
def test_a_good_program_has_no_error_and_the_expected_types(check: Checker, cache: Path) -> None:
    path = PROGRAMS / "accepted.py"
    messages = check(path, cache)
    assert errors(messages) == []
    found = {
        line: plain(match[1]) for line, _, text in messages if (match := REVEALED.search(text))
    }
    assert found == marked(path, r"reveal_type\(.*\)  # (.*)$")


@both
def test_each_error_of_a_bad_program_is_found(check: Checker, cache: Path) -> None:
    path = PROGRAMS / "rejected.py"
    found = errors(check(path, cache))
    assert {line for line, _ in found} == set(marked(path, r"  # (refused)$")), found
