"""A case that `pto new case` writes runs without changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def pto(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("pto")), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("choice", [(), ("--case", "large"), ("--all",)])
def test_a_new_case_runs_untouched(tmp_path: Path, choice: tuple[str, ...]) -> None:
    assert pto(tmp_path, "new", "case", "mine").returncode == 0
    result = pto(tmp_path, "run", "mine", *choice)
    assert result.returncode == 0, result.stderr


VARIANTS = ["aicpu_build_graph", "host_build_graph", "tensormap_and_ringbuffer"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_new_case_of_each_variant_runs_untouched(tmp_path: Path, variant: str) -> None:
    assert pto(tmp_path, "new", "case", "mine", "-r", variant).returncode == 0
    result = pto(tmp_path, "run", "mine", "--all", "--json")
    assert result.returncode == 0, result.stderr
    runs = json.loads(result.stdout)["cases"]
    assert [run["runtime"] for run in runs] == [variant, variant]


def test_a_new_case_of_an_unknown_variant_lists_the_known_ones(tmp_path: Path) -> None:
    result = pto(tmp_path, "new", "case", "mine", "-r", "host_build_grap")
    assert result.returncode == 2
    assert all(variant in result.stderr for variant in VARIANTS)
    assert not (tmp_path / "mine").exists()


def test_a_new_case_notices_a_wrong_kernel(tmp_path: Path) -> None:
    assert pto(tmp_path, "new", "case", "mine").returncode == 0
    kernel = tmp_path / "mine" / "kernels" / "aiv" / "add.cpp"
    kernel.write_text(kernel.read_text().replace("x[i] + y[i];\n", "x[i] - y[i];\n"))
    result = pto(tmp_path, "run", "mine")
    assert result.returncode == 1, result.stderr
    assert "output 'c' is wrong in 1024 of 1024 elements" in result.stderr
