"""Native plugins that `pto new plugin` writes are packed, installed and tested without changes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.toolchain

FAMILIES = ("backend", "runtime")
NAME = "mychip"
OURS = ("ptorun-devkit", "ptorun-backend-sim", "ptorun-runtime-hbg")
# The build requirements, for a pip that does not fetch them by itself.
BUILD = ("scikit-build-core", "cmake", "ninja")


def test_new_plugins_are_packed_installed_and_keep_their_contracts(environment, tmp_path):
    pto = environment.folder / "bin" / "pto"
    # The kit opens devices through the public API, which needs a backend and a runtime variant.
    environment.pip("install", *OURS, "pytest", *BUILD)
    for family in FAMILIES:
        environment.run(pto, "new", "plugin", family, NAME, cwd=tmp_path)
    # One package is built with the requirements in its pyproject.toml, the other as its README
    # says.
    environment.pip("install", tmp_path / f"pto-backend-{NAME}")
    environment.pip("install", "--no-build-isolation", tmp_path / f"pto-runtime-{NAME}")
    ours = {name for name in environment.installed() if name.startswith(("ptorun-", "pto-"))}
    assert ours == {
        *("ptorun-core", *OURS),
        *(f"pto-{family}-{NAME}" for family in FAMILIES),
    }
    rows = [line.split() for line in environment.run(pto, "plugins", cwd=tmp_path).splitlines()]
    projects = [f"pto-{family}-{NAME}" for family in FAMILIES]
    for family in FAMILIES:
        assert [row[-1] for row in rows if row[:2] == [family, NAME]] == ["healthy"]
    # All packages are tested in one call, without the configuration of a parent folder.
    options = ("-q", "--rootdir", str(tmp_path), "-c", "/dev/null")
    shown = environment.run(
        environment.python, "-m", "pytest", *options, *projects, cwd=tmp_path
    ).splitlines()[-1]
    assert " passed in " in shown
    assert "skipped" not in shown
