"""The checked-in stubs of the native module equal those that its sources generate."""

from __future__ import annotations

import ast
import importlib.util
from importlib.resources import files
from pathlib import Path

import pytest

import pto_core
from pto_core import _hierarchy, _interrupts, _native

NATIVE = Path(__file__).parents[2] / "native"


@pytest.mark.parametrize(
    ("module", "patterns"),
    [
        (_native, "stubs.pat"),
        (_interrupts, "stubs.pat"),
        (_hierarchy, "hierarchy/stubs.pat"),
    ],
    ids=["_native", "_interrupts", "_hierarchy"],
)
def test_stubs_are_fresh(module, patterns) -> None:
    if importlib.util.find_spec("nanobind") is None:
        pytest.skip("nanobind, which makes the stubs, is not installed")
    from nanobind.stubgen import StubGen, load_pattern_file

    generator = StubGen(
        module, include_docstrings=False, patterns=load_pattern_file(str(NATIVE / patterns))
    )
    generator.put(module)
    stub = f"{module.__name__.rpartition('.')[2]}.pyi"
    checked_in = (files(pto_core) / stub).read_text()
    assert ast.dump(ast.parse(checked_in)) == ast.dump(ast.parse(generator.get())), (
        f"run: python -m nanobind.stubgen -D -p pto_core/native/{patterns} -m {module.__name__} "
        f"-o pto_core/src/pto_core/{stub} && ruff format pto_core/src/pto_core/{stub}"
    )
