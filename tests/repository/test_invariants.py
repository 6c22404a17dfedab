"""Each invariant is stated above its test, and docs/invariants.md lists all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from invariants import ROOT, invariants, page


def test_the_page_is_the_generated_one() -> None:
    command = "python tests/repository/invariants.py > docs/invariants.md"
    assert (ROOT / "docs" / "invariants.md").read_text() == page(), f"run `{command}`"


def test_there_are_invariants_in_each_package() -> None:
    sections = [line for line in page().splitlines() if line.startswith("## ")]
    assert {"## pto_core", "## plugins/backend_sim", "## tests"} <= set(sections)
    assert page().count("\n| ") > 90


def test_an_invariant_without_a_test_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invariants.ROOT", tmp_path)
    path = tmp_path / "test_it.py"
    path.write_text("# Invariant: Water is\n# wet.\ndef test_water(): ...\n")
    assert [tuple(row) for row in invariants(path)] == [
        ("Water is wet.", "test_it.py", "test_water")
    ]
    path.write_text("# Invariant: Water is wet.\nx = 1\n")
    with pytest.raises(ValueError, match="no test follows"):
        list(invariants(path))
