"""The documentation's code runs: Python blocks are executed, commands exist, links lead somewhere.

Python blocks of one page run in order in one fresh interpreter, in an empty folder. A block that is
fenced as ``text output`` after them is what they print, word for word. Blocks in other languages
are not run; the commands in ``sh`` and ``console`` blocks must exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("**/README.md")])
PAGES = [page for page in dict.fromkeys(PAGES) if not {".venv", "build"} & set(page.parts)]
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CONTROL_WORDS = {"cd", "export", "git", "apt-get", "sudo", "python", "python3", "cat", "source"}


@dataclass(frozen=True)
class Block:
    info: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[1].strip(), match[2], text.count("\n", 0, match.start()) + 2)
        for match in FENCE.finditer(text)
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_run_and_print_what_the_page_shows(page, tmp_path):
    python = [block for block in blocks(page) if block.info == "python"]
    shown = "".join(block.text for block in blocks(page) if block.info == "text output")
    if not python:
        assert not shown, f"{name(page)} shows output of no program"
        return
    # Padding keeps the line numbers of a traceback those of the page.
    source = ""
    for block in python:
        source += "\n" * (block.line - 1 - source.count("\n")) + block.text
    program = tmp_path / f"{page.stem}.py"
    program.write_text(source)
    folder = tmp_path / "empty"
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{name(page)}:\n{result.stderr}"
    if shown:
        assert result.stdout == shown


def commands(page: Path):
    for block in blocks(page):
        if block.info.split(" ")[0] not in {"sh", "bash", "console", "shell"}:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            prompted = line.startswith("$ ")
            if block.info == "console" and not prompted:
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", words[0]):
                words = words[1:]
            if words:
                yield words


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_a_page_shows_exist(page):
    for words in commands(page):
        command = words[0]
        if command == "pto":
            arguments = [word for word in words[1:2] if not word.startswith("-")]
            check = [Path(sys.executable).with_name("pto"), *arguments, "--help"]
            result = subprocess.run(check, capture_output=True, text=True, check=False)
            assert result.returncode == 0, f"{shlex.join(words)}: {result.stderr}"
        elif command.startswith(("./", ".ci/")):
            assert os.access(ROOT / command, os.X_OK), f"{command} does not exist"
        elif command in {"pip", "pytest"}:
            assert Path(sys.executable).with_name(command).exists()
        else:
            assert command in CONTROL_WORDS, f"{name(page)} shows {command}, which no test knows"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    prose = FENCE.sub("", page.read_text())
    for target in LINK.findall(prose):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.exists(), f"{name(page)} links to {target}, which does not exist"


def test_the_readme_opens_with_its_two_commands():
    """Each is complete by itself, and stands above everything else."""
    text = (ROOT / "README.md").read_text()
    first = FENCE.search(text)
    assert first is not None
    found = [line for line in first[2].splitlines() if line.strip()]
    assert [line.partition("#")[0].strip() for line in found] == [
        "./quickstart run",
        "./quickstart test",
    ]
    before = [line for line in text[: first.start()].splitlines() if line.strip()]
    assert len(before) <= 3, "the commands are not above everything else"


def test_the_quickstart_explains_itself():
    result = subprocess.run([ROOT / "quickstart"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "./quickstart run" in result.stderr
    assert "./quickstart test" in result.stderr
