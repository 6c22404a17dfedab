"""Print docs/invariants.md: the list of the invariants that are stated above tests.

``python tests/repository/invariants.py > docs/invariants.md`` writes the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pto_core", "plugins/*", "tests")
MARK = re.compile(r"^ *(?:#|//) Invariant( of this file)?: (.*)$")
COMMENT = re.compile(r"^ *(?:#|//) (.*)$")
TEST = re.compile(r"^ *(?:async )?def (test_\w+)\(|^TEST\((\w+)\)|^ *def (check_\w+)\(")
HEADER = """# Invariants

Each invariant is a comment above the test that holds it. This page lists them by package;
`python tests/repository/invariants.py > docs/invariants.md` writes it. An invariant without a test
name is held by all tests of the file.
"""


class Invariant(NamedTuple):
    """One rule and its test. ``test`` is None for a rule of a whole file."""

    text: str
    file: str
    test: str | None


def invariants(path: Path) -> Iterator[Invariant]:
    """Find the invariants of one test file. Raises ValueError for an invariant without a test."""
    lines = path.read_text().splitlines()
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(lines):
        mark = MARK.match(line)
        if mark is None:
            continue
        text, end = [mark[2]], number + 1
        while (
            end < len(lines) and (more := COMMENT.match(lines[end])) and not MARK.match(lines[end])
        ):
            text.append(more[1])
            end += 1
        test = None if mark[1] else _test_below(lines[end:])
        if test is None and not mark[1]:
            raise ValueError(f"{name}:{number + 1}: no test follows this invariant")
        yield Invariant(" ".join(text), name, test)


def page() -> str:
    """Return the page."""
    parts = [HEADER]
    for pattern in PACKAGES:
        for package in sorted(ROOT.glob(pattern)):
            rows = [row for path in _test_files(package) for row in invariants(path)]
            if rows:
                parts.append(f"## {package.relative_to(ROOT)}\n")
                parts.append("| invariant | test |\n| --- | --- |")
                parts.append("\n".join(map(_row, rows)) + "\n")
    return "\n".join(parts)


def _test_below(lines: list[str]) -> str | None:
    for line in lines:
        if match := TEST.match(line):
            return next(filter(None, match.groups()))
    return None


def _test_files(package: Path) -> list[Path]:
    files = (path for suffix in ("*.py", "*.cpp") for path in package.rglob(suffix))
    return sorted(path for path in files if {"tests", "native_tests"} & set(path.parts))


def _row(row: Invariant) -> str:
    link = f"[{Path(row.file).name}](../{row.file})"
    return f"| {row.text} | {f'`{row.test}` in {link}' if row.test else link} |"


if __name__ == "__main__":
    sys.stdout.write(page())
