"""Importing the package is cheap: names are loaded when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pto_core

HEAVY = ("numpy", "ml_dtypes", "rich", "structlog", "pluggy", "pto_core._native", "pto_core.device")


def test_import_loads_nothing_heavy() -> None:
    program = f"import sys, pto_core; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert {name for name in pto_core.__all__ if hasattr(pto_core, name)} == set(pto_core.__all__)
    assert set(pto_core.__all__) <= set(dir(pto_core))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(pto_core.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    listed = {
        node.module: tuple(alias.name for alias in node.names if alias.name == alias.asname)
        for node in imports
    }
    parts = {f"pto_core.{part}": names for part, names in pto_core._PARTS.items()}
    assert listed == {"pto_core": pto_core._SECTIONS, **parts}


def test_a_name_of_a_section_is_also_a_name_of_the_package() -> None:
    for section in ("pto_core.chip", "pto_core.published"):
        for name in names_of(section):
            assert getattr(pto_core, name) is getattr(import_module(section), name)


def test_sections_are_attributes_of_the_package() -> None:
    program = "import pto_core; print(pto_core.chip.Device, pto_core.published.TaskArgs)"
    subprocess.run([sys.executable, "-c", program], check=True)


def names_of(module: str) -> set[str]:
    return {name for name in vars(import_module(module)) if not name.startswith("_")}


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pto_core.nothing
