"""The programs on pto have at most as many lines as those on Ray."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.python_programs import program_lines

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "programs"
PROGRAMS = ("map_items", "pipeline", "retries", "shared_array", "tree", "calls")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_at_most_as_many_lines_as_on_ray(program: str) -> None:
    ours, others = (
        program_lines((FOLDER / f"on_{system}.py").read_text(), program)
        for system in ("pto", "ray")
    )
    assert ours <= others
