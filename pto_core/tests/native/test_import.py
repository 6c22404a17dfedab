"""Importing the package is cheap: names are loaded when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
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
    assert listed == {f"pto_core.{part}": names for part, names in pto_core._PARTS.items()}


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pto_core.nothing
