"""The setting ``hazards=check`` finds no races in the examples that are programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.parent.name for path in EXAMPLES.glob("*/main.py"))
CHIPS = EXAMPLES / "11_two_chips_and_a_host_check" / "main.py"


def checked(program: Path) -> subprocess.CompletedProcess[str]:
    """Run a program whose runs are checked, at level 2 and above."""
    return subprocess.run(
        [sys.executable, program.name],
        cwd=program.parent,
        env={**os.environ, "PTO_HAZARDS": "check", "PTO_MEASURE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("example", PROGRAMS)
def test_the_check_is_silent_on_an_example(example: str) -> None:
    done = checked(EXAMPLES / example / "main.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_race_that_is_planted_in_an_example_is_found(tmp_path: Path) -> None:
    """A second host task overwrites the input that the chips and the first one still read."""
    submit = "            orch.submit_sub(host_check, b)\n"
    source = CHIPS.read_text()
    assert submit in source
    planted = tmp_path / "main.py"
    planted.write_text(
        source.replace(
            submit,
            submit
            + "            again = TaskArgs()\n"
            + "            again.add_tensor(x, TensorArgType.OUTPUT)\n"
            + "            orch.submit_sub(host_check, again)\n",
        )
    )
    done = checked(planted)
    assert done.returncode != 0
    assert "3 pairs of tasks race" in done.stderr, done.stderr
    assert "main.py:" in done.stderr
