"""The checked-in stubs of the native module are those that its sources give."""

from __future__ import annotations

import ast
import importlib.util
from importlib.resources import files
from pathlib import Path

import pytest

import pto_core
from pto_core import _native

PATTERNS = Path(__file__).parents[2] / "native" / "stubs.pat"


def test_stubs_are_fresh() -> None:
    if importlib.util.find_spec("nanobind") is None:
        pytest.skip("nanobind, which makes the stubs, is not installed")
    from nanobind.stubgen import StubGen, load_pattern_file

    patterns = load_pattern_file(str(PATTERNS))
    generator = StubGen(_native, include_docstrings=False, patterns=patterns)
    generator.put(_native)
    checked_in = (files(pto_core) / "_native.pyi").read_text()
    assert ast.dump(ast.parse(checked_in)) == ast.dump(ast.parse(generator.get())), (
        "run: python -m nanobind.stubgen -D -p pto_core/native/stubs.pat -m pto_core._native -o "
        "pto_core/src/pto_core/_native.pyi && ruff format pto_core/src/pto_core/_native.pyi"
    )
