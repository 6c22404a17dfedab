"""The code in the documentation works: Python blocks run, commands exist, links are valid.

The Python blocks of a page run in order in one new interpreter, in an empty folder. A page whose
blocks use names of earlier blocks says so; on other pages, each block also runs alone. A following
block that is fenced as ``text output`` must equal their output. TOML blocks are parsed; the command
itself parses the arguments of ``pto`` commands. No other blocks are run here; the packaging tests
build the plugin of docs/writing-a-plugin.md.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import runpy
import shlex
import subprocess
import symtable
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "quickstart"
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("**/README.md")])
PAGES = [page for page in dict.fromkeys(PAGES) if not {".venv", "build"} & set(page.parts)]
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OURS = ("pto ", "./quickstart ")
QUICKSTART_COMMANDS = {"run", "test", "setup", "wheels"}
# A program that parses the real command line, but does nothing in the place of the command.
PARSE = """
import json, sys
from pto_core.cli.main import load, main

for words in json.loads(sys.argv[1]):
    if words and not words[0].startswith("-"):
        load(words[0]).run = lambda namespace: 0
    if main(words) != 0:
        sys.exit(f"not understood: pto {' '.join(words)}")
"""
ONE_PROGRAM = "The Python blocks of this page form one program, from top to bottom."
CONTROL_WORDS = {
    "cd",
    "export",
    "git",
    "apt-get",
    "sudo",
    "python",
    "python3",
    "cat",
    "source",
    "ray",
}


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
        assert not shown, f"{name(page)} shows output without a program"
        return
    # Empty lines before the code make the line numbers of a traceback equal to those of the page.
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


def unbound_names(source: str) -> set[str]:
    """Return the names that a program uses and does not define."""
    pending = [symtable.symtable(source, "block", "exec")]
    used, bound = set(), {*dir(builtins), "__name__", "__file__"}
    while pending:
        table = pending.pop()
        pending += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                is_bound = symbol.is_assigned() or symbol.is_imported()
                (bound if is_bound else used).add(symbol.get_name())
    return used - bound


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_stand_alone_or_the_page_says_that_they_do_not(page):
    unbound = {
        block.line: names
        for block in blocks(page)
        if block.info == "python" and (names := unbound_names(block.text))
    }
    assert bool(unbound) == (ONE_PROGRAM in page.read_text()), unbound


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_toml_blocks_are_toml(page):
    for block in blocks(page):
        if block.info == "toml":
            assert tomllib.loads(block.text), f"{name(page)}:{block.line}"


def commands(text: Path | list[Block]):
    """Yield the words of each command; for a block without a language, only our own commands."""
    for block in blocks(text) if isinstance(text, Path) else text:
        language = block.info.split(" ")[0]
        if language not in {"", "sh", "bash", "console", "shell"}:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            prompted = line.startswith("$ ")
            line = line.removeprefix("$ ")
            if language == "" and not line.startswith(OURS):
                continue
            if language == "console" and not prompted:
                continue
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", words[0]):
                words = words[1:]
            if words:
                yield words


def understood(arguments: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """Parse each list of arguments as ``pto`` does, without running the command."""
    check = [sys.executable, "-c", PARSE, json.dumps(arguments)]
    return subprocess.run(check, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_a_page_shows_exist(page):
    arguments = []
    for words in commands(page):
        command = words[0]
        if command == "pto":
            arguments.append(words[1:])
        elif command == "./quickstart":
            assert words[1] in QUICKSTART_COMMANDS, shlex.join(words)
            if words[1] == "run":
                arguments.append(words[1:])
        elif command.startswith(("./", ".ci/")):
            assert os.access(ROOT / command, os.X_OK), f"{command} does not exist"
        elif command in {"pip", "pytest"}:
            assert Path(sys.executable).with_name(command).exists()
        else:
            assert command in CONTROL_WORDS, f"{name(page)} shows {command}, which no test knows"
        missing = [w for w in words if w.startswith("examples/") and not (ROOT / w).exists()]
        assert not missing, f"{name(page)}: {missing}"
    if arguments:
        result = understood(arguments)
        assert result.returncode == 0, f"{name(page)}: {result.stderr}"


@pytest.mark.parametrize(
    "line", ["runn CASE", "run CASE --repeats 3", "run --repeat x CASE", "config --al", "new"]
)
def test_a_command_that_does_not_exist_is_found(line):
    block = Block("sh", f"pto {line}\n", 1)
    assert understood([words[1:] for words in commands([block])]).returncode != 0


def test_the_quickstart_accepts_these_commands():
    (taken,) = re.findall(r"^ *(\w+(?: \| \w+)+)\) shift ;;", QUICKSTART.read_text(), re.MULTILINE)
    assert set(taken.split(" | ")) == QUICKSTART_COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_a_target(page):
    prose = FENCE.sub("", page.read_text())
    for target in LINK.findall(prose):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.exists(), f"{name(page)} links to {target}, which does not exist"


INDEX_INSTALL = re.compile(r"pip3? install(?![^`\n]*--no-index)[^`\n]*?[\s'\"](ptorun|pto)[-_]")


def test_no_text_installs_our_packages_from_an_index(checkout):
    """These names are not on the public index, where anyone could publish packages under them."""
    for path in checkout.with_suffix(".md", ".py", ".cpp", ".hpp", ".h", ".toml", ".yml", ""):
        if path.suffix == "" and not path.read_bytes().startswith(b"#!"):
            continue
        found = INDEX_INSTALL.search(path.read_text())
        assert found is None, f"{checkout.name(path)}: {found[0]}"


@pytest.mark.parametrize(
    ("arguments", "is_found"),
    [
        ("ptorun-core ptorun-backend-sim", True),
        ("'ptorun-core[sim]'` adds it", True),
        ("--upgrade pto-backend-mychip", True),
        ("--no-index --find-links DIR 'ptorun-core[sim]'", False),
        ("--no-build-isolation ./pto-backend-mychip", False),
        ("torch`, or ptorun-core", False),
    ],
)
def test_an_installation_from_an_index_is_found(arguments, is_found):
    assert bool(INDEX_INSTALL.search(f"pip install {arguments}")) == is_found


def test_the_readme_opens_with_its_two_commands():
    """Only the title and three lines of introduction precede them."""
    text = (ROOT / "README.md").read_text()
    first = FENCE.search(text)
    assert first is not None
    found = [line for line in first[2].splitlines() if line.strip()]
    assert [line.partition("#")[0].strip() for line in found] == [
        "./quickstart run",
        "./quickstart test",
    ]
    before = [line for line in text[: first.start()].splitlines() if line.strip()]
    assert len(before) <= 4, "more than a title and three lines are above the commands"


def rows(page: Path) -> list[list[str]]:
    """Return the cells of each table row of the page."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    readme = rows(ROOT / "README.md")
    start = readme.index(["figure", "median", "peer", "ratio"])
    figure = readme[start + 2]
    measured = {row[0]: row for row in rows(ROOT / "docs/benchmarks.md")}[figure[0]]
    assert set(figure) <= set(measured), f"measured: {measured}"


@pytest.mark.parametrize("script", sorted((ROOT / "docs/pictures").glob("*.py")), ids=name)
def test_a_picture_is_the_output_of_its_script(script):
    picture = runpy.run_path(str(script))["picture"]()
    message = f"run python {name(script)}"
    assert script.with_suffix(".svg").read_text() == picture, message


def test_the_quickstart_explains_itself():
    result = subprocess.run([ROOT / "quickstart"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "./quickstart run" in result.stderr
    assert "./quickstart test" in result.stderr
