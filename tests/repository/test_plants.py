"""Each planted bug in the sources has a test that finds it, and only tests compile it."""

from __future__ import annotations

import re

import pytest

CAUGHT_BY = {
    "LOST_EDGE": ("plugins/runtime_hbg/tests/test_native.py", "test_planted_bug_is_found"),
    "LOST_WAKEUP": ("plugins/runtime_pto2/tests/test_native.py", "test_planted_bug_is_found"),
    "DOUBLE_COUNT": ("plugins/runtime_pto2/tests/test_native.py", "test_planted_bug_is_found"),
    "EARLY_RECLAIM": ("plugins/runtime_pto2/tests/test_native.py", "test_planted_bug_is_found"),
    "TRUNCATED_FANIN": ("plugins/runtime_pto2/tests/test_native.py", "test_planted_bug_is_found"),
}
SWITCH = re.compile(r"PTO_PLANT_([A-Z_]+)")
BRANCH = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*$", re.MULTILINE)


def in_sources(checkout) -> set[str]:
    """Return the switches that a branch of a product source checks."""
    found = set()
    for path in checkout.with_suffix(".c", ".h", ".cpp", ".hpp"):
        if "tests" not in path.relative_to(checkout.root).parts:
            for line in BRANCH.findall(path.read_text()):
                found.update(SWITCH.findall(line))
    return found


def test_the_switches_of_the_sources_are_those_that_tests_catch(checkout) -> None:
    assert in_sources(checkout) == set(CAUGHT_BY)


@pytest.mark.parametrize("switch", CAUGHT_BY)
def test_the_test_that_catches_it_exists(checkout, switch: str) -> None:
    file, test = CAUGHT_BY[switch]
    text = (checkout.root / file).read_text()
    assert re.search(rf"\b(PTO_PLANT_)?{switch}\b", text), f"{file} does not build {switch}"
    assert f"def {test}(" in text


def test_nothing_but_tests_switches_them_on(checkout) -> None:
    for path in checkout.files:
        name = checkout.name(path)
        if "/tests/" in f"/{name}" or path.suffix not in (".txt", ".toml", ".cmake", ".py", ""):
            continue
        text = path.read_text(errors="replace") if path.is_file() else ""
        assert not re.search(r"PTO_PLANT_\w+=(ON|1)\b", text), f"{name} builds a planted bug"
