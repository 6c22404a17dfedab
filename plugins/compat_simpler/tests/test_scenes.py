"""Test the runners of scene tests: a file as a command, and pytest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pto_core.cli.main import main

SCENES = Path(__file__).parent / "scenes"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=300
    )


def test_a_file_runs_its_cases() -> None:
    outcome = run(str(SCENES / "test_vector.py"), "-p", "a2a3sim", "-d", "0-7")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.splitlines() == [
        "TestVector::default: PASSED",
        "TestVectorOnHost::default: PASSED",
        "2 passed, 0 failed",
    ]


def test_manual_cases_run_on_request_and_a_wrong_output_fails() -> None:
    outcome = run(str(SCENES / "test_vector.py"), "--manual", "only", "--rounds", "2")
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    lines = outcome.stdout.splitlines()
    assert "TestVector::small_rings: PASSED" in lines
    assert "TestVector::wrong: FAILED" in lines
    assert "output 'f' is wrong in 1 of 8" in outcome.stdout
    assert lines[-1] == "2 passed, 2 failed"


def test_one_case_can_be_chosen() -> None:
    outcome = run(str(SCENES / "test_vector.py"), "--case", "TestVector::wrong", "--skip-golden")
    assert (outcome.returncode, outcome.stdout) == (
        0,
        "TestVector::wrong: PASSED\n1 passed, 0 failed\n",
    )
    outcome = run(str(SCENES / "test_vector.py"), "--case", "TestVector::card")
    assert outcome.returncode == 2
    assert "no case runs on a2a3sim" in outcome.stdout
    assert "  TestVector::card (a2a3)" in outcome.stdout
    outcome = run(str(SCENES / "test_vector.py"), "-d", "all")
    assert outcome.returncode == 2
    assert "the device is 'all'; pass a number" in outcome.stderr


def test_pto_run_runs_a_file_as_its_command_does(
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = str(SCENES / "test_vector.py")
    words = ("-p", "a2a3sim", "--repeat", "2", "--case", "TestVector::wrong")
    assert main(["run", file, *words, "--skip-golden"]) == 0
    assert capfd.readouterr().out == "TestVector::wrong: PASSED\n1 passed, 0 failed\n"
    assert main(["run", file, "--hazards", "full", "--case", "TestVector::default"]) == 0
    assert main(["run", file, "--hazards", "other"]) == 2
    refused = {
        "--all": [],
        "--dump": [],
        "--dump-level": ["failed"],
        "--golden": ["golden.py"],
        "--kernels": ["."],
        "--no-explain": [],
        "--out": ["."],
        "--pmu": [],
        "--runtime": ["pto2"],
        "--seed": ["0"],
        "--set": ["block_dim=2"],
        "--silent": [],
        "--timeout": ["5"],
        "--trace-after": ["0"],
    }
    for option, values in refused.items():
        assert main(["run", file, option, *values]) == 2
        assert f"{option} is for the folder of a case" in capfd.readouterr().err


def test_pytest_collects_the_cases(tmp_path: Path) -> None:
    folder = tmp_path / "scenes"  # outside of the conftest.py of this repository
    shutil.copytree(SCENES, folder, ignore=shutil.ignore_patterns("test_programs.py"))
    outcome = run(
        *("-m", "pytest", str(folder), "--platform", "a2a3sim", "--manual", "include", "-v")
    )
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "test_vector.py::TestVector::default PASSED" in outcome.stdout
    assert "test_vector.py::TestVector::wrong FAILED" in outcome.stdout
    assert "test_chips.py::TestTwoChips::default PASSED" in outcome.stdout
    assert "3 failed, 6 passed" in outcome.stdout


def test_another_distribution_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "simpler", raising=False)
    monkeypatch.setattr(
        "importlib.metadata.packages_distributions",
        lambda: {"simpler": ["ptorun-compat-simpler", "simpler"]},
    )
    with pytest.raises(ImportError, match="the distribution simpler has a module named 'simpler'"):
        __import__("simpler")


def test_level_3_uses_several_devices() -> None:
    file = str(SCENES / "test_chips.py")
    outcome = run(file, "-p", "a2a3sim", "--manual", "include", "--rounds", "2")
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    lines = outcome.stdout.splitlines()
    assert lines[:2] == ["TestTwoChips::default: PASSED", "TestOneChip::default: PASSED"]
    assert "output 'out' is wrong in 16 of 16" in outcome.stdout
    assert lines[-1] == "2 passed, 1 failed"
    outcome = run(file, "-d", "3", "--case", "TestTwoChips::default")
    assert outcome.returncode == 1
    assert "TestTwoChips needs 2 devices, and -d gives 1; pass -d 0-1" in outcome.stdout
