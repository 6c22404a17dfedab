"""docs/design.md numbers the invariants; each names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| (I\d+) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE
)


def test_they_are_numbered_without_a_gap() -> None:
    assert [number for number, _, _ in ROWS] == [f"I{n}" for n in range(1, len(ROWS) + 1)]
    assert len(ROWS) > 10


@pytest.mark.parametrize(("number", "tests"), [(number, tests) for number, _, tests in ROWS])
def test_each_names_tests_that_exist(number: str, tests: str) -> None:
    names = re.findall(r"`([^`]+)`", tests)
    assert names, f"{number} names no test"
    missing = [name for name in names if not _exists(name)]
    assert not missing, f"{number} names {missing}, which nothing defines"


def _exists(name: str) -> bool:
    if "/" in name:
        return (ROOT / name).exists()
    if name.endswith("_test"):
        folders = ("plugins/*/native/tests", "pto_core/native_tests")
        return any(any(ROOT.glob(f"{folder}/{name}.cpp")) for folder in folders)
    pattern = re.compile(rf"\b{name}\b")
    folders = ("pto_core/tests", "pto_core/native_tests", "tests", "plugins")
    sources = (
        path
        for folder in folders
        for suffix in ("*.py", "*.cpp")
        for path in (ROOT / folder).rglob(suffix)
    )
    return any(
        pattern.search(path.read_text()) for path in sources if path.name != Path(__file__).name
    )
