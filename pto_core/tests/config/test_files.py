"""Finding and reading pto.toml and pyproject.toml."""

from __future__ import annotations

import pytest

from pto_core.config import load
from pto_core.errors import ConfigError
from pto_core.interfaces import Option, parse

OPTIONS = (Option("chip.level", 3, parse.integer(0, 9), "a level"),)


def read(folder):
    return load(cwd=folder, environ={}, options=OPTIONS)


def test_the_nearest_file_upwards_is_read(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pto.toml").write_text("device = 1\njobs = 7\n")
    assert read(inner)["device"] == 1
    assert read(inner).origin("device") == "../../pto.toml:1"
    (tmp_path / "a" / "pto.toml").write_text("device = 2\n")
    assert read(inner)["device"] == 2
    # the nearest file is used alone; files are not merged
    assert read(inner).origin("jobs") == "default"


def test_a_table_of_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n\n[tool.pto]\ndevice = 1\n[tool.pto.chip]\nlevel = 5\n'
    )
    config = read(tmp_path)
    assert (config["device"], config.origin("device")) == (1, "pyproject.toml:5")
    assert (config["chip.level"], config.origin("chip.level")) == (5, "pyproject.toml:7")


def test_pto_toml_comes_before_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.pto]\ndevice = 1\n")
    (tmp_path / "pto.toml").write_text("device = 2\n")
    assert read(tmp_path)["device"] == 2


def test_a_pyproject_of_another_project_is_ignored(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pto.toml").write_text("device = 3\n")
    (inner / "pyproject.toml").write_text("[project\nbroken, and not ours\n")
    assert read(inner)["device"] == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("chip.level = 6\n", 1),
        ("# first\n\n[chip]  # a table\n  level = 6\n", 4),
        ('"chip" . "level" = 6\n', 1),
    ],
)
def test_every_spelling_of_a_key_has_its_line(tmp_path, text, line):
    (tmp_path / "pto.toml").write_text(text)
    config = read(tmp_path)
    assert (config["chip.level"], config.origin("chip.level")) == (6, f"pto.toml:{line}")


def test_a_key_in_an_inline_table_names_the_file(tmp_path):
    (tmp_path / "pto.toml").write_text("chip = {level = 6}\n")
    assert read(tmp_path).origin("chip.level") == "pto.toml"


def test_a_relative_path_counts_from_the_file(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pto.toml").write_text('cache_dir = "cache"\n')
    assert read(inner)["cache_dir"] == tmp_path / "cache"
    config = load(set_=["cache_dir=cache"], cwd=inner, environ={})
    assert config["cache_dir"] == inner / "cache"


def test_the_error_of_a_broken_file_names_file_and_line(tmp_path):
    (tmp_path / "pto.toml").write_text("device = 1\njobs = = 2\n")
    with pytest.raises(ConfigError, match=r"^pto\.toml:2 is not valid TOML") as caught:
        read(tmp_path)
    assert caught.value.origin == "pto.toml:2"
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "pto.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"pto\.toml cannot be read"):
        read(tmp_path)


def test_an_unknown_key_names_file_line_and_neighbour(tmp_path):
    (tmp_path / "pto.toml").write_text("jobs = 1\nbakend = 'sim'\n")
    with pytest.raises(ConfigError) as caught:
        read(tmp_path)
    assert str(caught.value) == ("unknown setting 'bakend' (pto.toml:2); did you mean 'backend'?")
    assert (caught.value.name, caught.value.origin) == ("bakend", "pto.toml:2")
