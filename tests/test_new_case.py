"""A case that `pto new case` writes runs without changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fake_distributions import pto_here


@pytest.fixture
def folder(compiled_folder: Path) -> Path:
    """Return an empty folder, the same for all tests, so that equal sources are compiled once."""
    shutil.rmtree(compiled_folder, ignore_errors=True)
    compiled_folder.mkdir()
    return compiled_folder


def test_a_new_case_runs_untouched(folder: Path) -> None:
    assert pto_here("new", "case", "mine", cwd=folder).returncode == 0
    for choice in ((), ("--case", "large")):
        result = pto_here("run", "mine", *choice, cwd=folder)
        assert result.returncode == 0, result.stderr


VARIANTS = ["aicpu_build_graph", "host_build_graph", "tensormap_and_ringbuffer"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_new_case_of_each_variant_runs_untouched(folder: Path, variant: str) -> None:
    assert pto_here("new", "case", "mine", "-r", variant, cwd=folder).returncode == 0
    result = pto_here("run", "mine", "--all", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    runs = json.loads(result.stdout)["cases"]
    assert [run["runtime"] for run in runs] == [variant, variant]


def test_a_new_case_of_the_interface_of_august_2026_runs_untouched(folder: Path) -> None:
    assert pto_here("new", "case", "mine", "--api", "2026-08", cwd=folder).returncode == 0
    result = pto_here("run", "mine", "--all", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    runs = json.loads(result.stdout)["cases"]
    assert [(run["runtime"], run["api"]) for run in runs] == [(VARIANTS[2], "2026-08")] * 2
    refused = pto_here("new", "case", "other", "--api", "2026-08", "-r", VARIANTS[1], cwd=folder)
    assert refused.returncode == 2
    assert "use -r tensormap_and_ringbuffer" in refused.stderr
    assert not (folder / "other").exists()


def test_a_new_case_of_an_unknown_variant_lists_the_known_ones(folder: Path) -> None:
    result = pto_here("new", "case", "mine", "-r", "host_build_grap", cwd=folder)
    assert result.returncode == 2
    assert all(variant in result.stderr for variant in VARIANTS)
    assert not (folder / "mine").exists()


def test_a_new_case_notices_a_wrong_kernel(folder: Path) -> None:
    assert pto_here("new", "case", "mine", cwd=folder).returncode == 0
    kernel = folder / "mine" / "kernels" / "aiv" / "add.cpp"
    kernel.write_text(kernel.read_text().replace("x[i] + y[i];\n", "x[i] - y[i];\n"))
    result = pto_here("run", "mine", cwd=folder)
    assert result.returncode == 1, result.stderr
    assert "output 'c' is wrong in 1024 of 1024 elements" in result.stderr
