"""The quickstart reports what a machine lacks, and pins the declared requirements."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def quickstart(
    tmp_path: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in another folder, so that this checkout stays unchanged."""
    copy = tmp_path / "quickstart"
    copy.write_text((ROOT / "quickstart").read_text())
    copy.chmod(0o755)
    return subprocess.run(
        [copy, *(arguments or ("setup",))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def script(path: Path, body: str) -> str:
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_missing_python_is_named(tmp_path):
    result = quickstart(tmp_path, PYTHON="python-that-is-not-here")
    assert result.returncode == 1
    assert "'python-that-is-not-here' was not found" in result.stderr
    assert "apt-get install" in result.stderr


def test_an_old_python_is_named_with_its_version(tmp_path):
    old = script(tmp_path / "old", 'case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac')
    result = quickstart(tmp_path, PYTHON=old)
    assert result.returncode == 1
    assert "Python 3.9.2, 3.11 or newer is needed" in result.stderr


def test_a_python_without_venv_or_headers_is_named(tmp_path):
    for missing, word in (("ensurepip", "venv module"), ("Python.h", "headers (Python.h)")):
        python = script(
            tmp_path / "python",
            f'case "$2" in *{missing}*) exit 1;; esac; exit 0\n',
        )
        result = quickstart(tmp_path, PYTHON=python)
        assert result.returncode == 1
        assert word in result.stderr
        assert "apt-get install python3-" in result.stderr


def test_a_compiler_that_is_too_old_is_named(tmp_path):
    compiler = script(tmp_path / "old++", "exit 1\n")
    result = quickstart(tmp_path, CXX=compiler)
    assert result.returncode == 1
    assert f"{compiler} does not compile C++20" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_it_builds_every_package_the_core_first(checkout):
    text = (ROOT / "quickstart").read_text()
    listed = re.search(r"^packages=\(([^)]*)\)", text, re.MULTILINE)[1].split()
    folders = [package.folder.relative_to(ROOT).as_posix() for package in checkout.packages]
    assert listed[0] == "pto_core"
    assert sorted(listed) == sorted(folders)


def test_wheels_without_one_folder_is_refused_before_anything_is_made(tmp_path):
    for folders in ([], ["one", "two"]):
        result = quickstart(tmp_path, "wheels", *folders)
        assert result.returncode == 1
        assert f"wheels takes one folder, {len(folders)} were given" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["quickstart"]


def listed_in(text: str, array: str) -> set[str]:
    body = re.search(rf"^{array}=\((.*?)\)$", text, re.MULTILINE | re.DOTALL)[1]
    return set(body.split())


def test_the_wheels_are_those_that_the_packages_declare(checkout):
    declared = {
        re.match(r"[\w-]+", requirement)[0]
        for package in checkout.packages
        for requirement in package.pyproject["project"]["dependencies"]
    }
    third_party = {name for name in declared if not name.startswith("ptorun-")}
    assert listed_in((ROOT / "quickstart").read_text(), "run_time") == third_party


def test_it_installs_every_declared_dependency(checkout):
    text = (ROOT / "quickstart").read_text()
    listed = set().union(*(listed_in(text, f"{time}_time") for time in ("build", "run", "test")))
    pins = {
        line.partition("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    for package in checkout.packages:
        project = package.pyproject
        requirements = project["build-system"]["requires"] + project["project"]["dependencies"]
        for requirement in requirements:
            distribution = re.match(r"[\w-]+", requirement)[0]
            if not distribution.startswith("ptorun-"):
                assert distribution in listed, f"{distribution} ({package.folder.name})"
    assert listed <= pins, f"not pinned in constraints.txt: {listed - pins}"
