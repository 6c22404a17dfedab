"""`.ci/declared-only` hides every program that `.ci/declared-tools` does not list."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUARD = ROOT / ".ci" / "declared-only"
NOT_FOUND = 127


def declared() -> dict[str, list[str]]:
    """Return the programs for each part of the README's sentence."""
    programs: dict[str, list[str]] = {}
    for line in (ROOT / ".ci" / "declared-tools").read_text().splitlines():
        if line and not line.startswith("#"):
            need, _, names = line.partition(":")
            programs.setdefault(need, []).extend(names.split())
    return programs


def test_the_readme_names_what_the_list_declares() -> None:
    *most, last = [need for need in declared() if need != "optional"]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f" It needs {', '.join(most)} and {last}. " in text


def test_the_page_about_tests_names_the_optional_programs() -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    for program in declared()["optional"]:
        assert f"`{program}`" in text


def test_the_readmes_commands_and_the_slow_tests_of_ci_run_with_the_declared_programs() -> None:
    stages = re.findall(r"^  stage .*\./quickstart.*$", (ROOT / ".ci" / "run").read_text(), re.M)
    assert len(stages) == 3
    assert all('"${declared[@]}" ./quickstart' in stage for stage in stages)


def guarded(
    folder: Path, *command: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GUARD, folder / "guard", *command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return an undeclared program in a folder of its own."""
    program = tmp_path / "bin" / "undeclared-compiler"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho compiled\n")
    program.chmod(0o755)
    return program


def test_an_undeclared_program_on_the_path_is_not_found(tmp_path: Path, planted: Path) -> None:
    path = f"{planted.parent}:{os.environ['PATH']}"
    script = f"{planted.name} || exit $?"
    assert subprocess.run(["sh", "-c", script], env={"PATH": path}, check=False).returncode == 0
    done = guarded(tmp_path, "sh", "-c", script, PATH=path)
    assert done.returncode == NOT_FOUND, done.stdout + done.stderr
    assert f"{planted.name}: not found" in done.stderr


def test_an_absolute_path_leads_to_no_undeclared_program(tmp_path: Path, planted: Path) -> None:
    path = f"{planted.parent}:{os.environ['PATH']}"
    done = guarded(tmp_path, "sh", "-c", f"{planted} || exit $?", PATH=path)
    if "mounts are not permitted" in done.stderr:
        pytest.xfail("not run: this machine permits no mount namespaces")
    assert done.returncode == NOT_FOUND, done.stdout + done.stderr


def test_the_declared_programs_work_and_the_environment_is_clean(tmp_path: Path) -> None:
    script = """
        test -z "$CXX$PTO_RUNTIME$PYTHONPATH" && test "$PIP_NO_INPUT" = 1 && find "$HOME" -type f &&
        echo 'int main() {}' > "$HOME/a.cpp" && g++ -std=c++20 "$HOME/a.cpp" -o "$HOME/empty" &&
        "$HOME/empty" && git --version && python3 -m venv --without-pip "$HOME/venv" &&
        "$HOME/venv/bin/python" -c 'import ssl, sys; print(sys.version)'"""
    done = guarded(
        tmp_path,
        "sh",
        "-c",
        script,
        CXX="none",
        PTO_RUNTIME="none",
        PYTHONPATH="/",
        PIP_NO_INPUT="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"git version .*\n3\..*\n(.*\n)?", done.stdout)


def test_a_missing_declared_program_is_an_error(tmp_path: Path) -> None:
    copy = tmp_path / ".ci"
    shutil.copytree(GUARD.parent, copy)
    with (copy / "declared-tools").open("a") as file:
        file.write("a tool of this test: planted-and-missing\n")
    done = subprocess.run(
        [copy / GUARD.name, tmp_path, "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"planted-and-missing is missing, which {copy}/declared-tools names" in done.stderr
