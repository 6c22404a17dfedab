"""docs/ascend.md names tests that exist, for each row that a test shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\|[^|\n]*\|([^|\n]*)\|[^|\n]*\|$", re.MULTILINE)
DEFINITION = re.compile(r"^(?:TEST\(|def )(\w+)", re.MULTILINE)


def test_each_row_of_the_page_names_tests_that_exist() -> None:
    header, _, *rows = ROW.findall((ROOT / "docs" / "ascend.md").read_text())
    assert header == " shown by "
    tests = [re.findall(r"`(\w+)`", row) for row in rows]
    assert all(tests), "each row names a test"
    plugin = ROOT / "plugins" / "backend_a2a3"
    files = (*plugin.rglob("*.cpp"), *plugin.rglob("test_*.py"), *ROOT.glob("tests/*/test_*.py"))
    defined = {name for file in files for name in DEFINITION.findall(file.read_text())}
    assert {name for row in tests for name in row} - defined == set()
