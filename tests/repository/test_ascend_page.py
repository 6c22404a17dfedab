"""docs/ascend.md names existing tests in each row of its table, and all settings of the fakes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ascend.md").read_text()
PLUGIN = ROOT / "plugins" / "backend_a2a3"
ROW = re.compile(r"^\|[^|\n]*\|([^|\n]*)\|[^|\n]*\|$", re.MULTILINE)
DEFINITION = re.compile(r"^(?:TEST\(|def )(\w+)", re.MULTILINE)
KEY = re.compile(r'key == "(\w+)"')


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(header: str) -> set[str]:
    """Return the names in the first column of the table with this first header."""
    rows = section("The fake device by hand").split(f"| {header} |")[1].split("\n\n")[0]
    return set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", rows, re.MULTILINE))))


def test_each_row_of_the_page_names_tests_that_exist() -> None:
    header, _, *rows = ROW.findall(section("What has been shown"))
    assert header == " shown by "
    tests = [re.findall(r"`(\w+)`", row) for row in rows]
    assert all(tests), "each row names a test"
    files = (*PLUGIN.rglob("*.cpp"), *PLUGIN.rglob("test_*.py"), *ROOT.glob("tests/*/test_*.py"))
    defined = {name for file in files for name in DEFINITION.findall(file.read_text())}
    assert {name for row in tests for name in row} - defined == set()


def test_the_page_has_every_setting_of_the_fake_device() -> None:
    driver = KEY.findall((PLUGIN / "tests" / "fake_driver" / "settings.cpp").read_text())
    process = KEY.findall((PLUGIN / "tests" / "device_process" / "main.cpp").read_text())
    assert table("setting of the fake driver") == set(driver)
    assert table("setting of the device process") == set(process)
