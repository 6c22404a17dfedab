"""docs/hooks.md has a section on every hook with its exact arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pto_core.plugins.hooks import Hooks

PAGE = Path(__file__).parents[3] / "docs" / "hooks.md"
NAMES = [name for name in vars(Hooks) if name.startswith("pto_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_has_a_section_with_its_arguments(name):
    arguments = list(inspect.signature(getattr(Hooks, name)).parameters)[1:]
    assert f"## {name}({', '.join(arguments)})\n" in PAGE.read_text()


def test_the_page_describes_no_hook_that_does_not_exist():
    assert set(re.findall(r"^## (pto_\w+)\(", PAGE.read_text(), re.MULTILINE)) == set(NAMES)
