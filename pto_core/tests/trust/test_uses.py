"""Files that determine what is executed are refused if another user could have written them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core.cli.main import main
from pto_core.config import load, load_core
from pto_core.errors import ConfigError
from pto_core.interfaces import BuildRecipe
from pto_core.toolchain import BuildEvent, Toolchain
from pto_core.toolchain.source_folders import SourceFolders


@pytest.mark.parametrize(
    ("name", "text"),
    [("pto.toml", 'cxx = "./compiler"\n'), ("pyproject.toml", '[tool.pto]\ncxx = "./compiler"\n')],
)
@pytest.mark.parametrize("is_foreign", [False, True])
def test_settings(
    tmp_path: Path, give_away: Callable[[Path], int], name: str, text: str, is_foreign: bool
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    file = tmp_path / name
    file.write_text(text)
    assert load(cwd=below, environ={})["cxx"] == "./compiler"
    owner = give_away(file) if is_foreign else os.geteuid()
    if not is_foreign:
        file.chmod(0o666)
    with pytest.raises(ConfigError) as info:
        load(cwd=below, environ={})
    assert f"the settings file ../../{name} is not used: {file} belongs to" in str(info.value)
    assert f"uid {owner})" in str(info.value) or f"uid {owner} " in str(info.value)
    assert ("0644" if is_foreign else "0666") in str(info.value)


def test_a_project_of_another_user_without_settings_is_ignored(
    tmp_path: Path, give_away: Callable[[Path], int]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    give_away(tmp_path / "pyproject.toml")
    assert load(cwd=tmp_path, environ={})["cxx"] is None


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "one.cpp"
    path.write_text('extern "C" void kernel_entry(long* args) { args[0] = 1; }\n')
    return path


def _build(cache: Path, source: Path) -> list[str]:
    events: list[BuildEvent] = []
    config = load_core({"cache_dir": cache}, environ={})
    Toolchain(config, events.append).build_kernel(source, "aiv", BuildRecipe())
    return [event.state for event in events]


@pytest.mark.parametrize("folder", [".", "artefacts", "manifests", ".."])
def test_a_cache_folder(tmp_path: Path, source: Path, folder: str) -> None:
    cache = tmp_path / "above" / "cache"
    _build(cache, source)
    (cache / folder).chmod(0o777)
    with pytest.raises(ConfigError, match=r"the cache folder .* belongs to .* mode 0777") as info:
        _build(cache, source)
    assert info.value.name == "cache_dir"
    (cache / folder).chmod(0o755)
    assert _build(cache, source) == ["cached"]


@pytest.mark.parametrize("files", ["artefacts/*", "manifests/*", "compilers/*"])
def test_files_of_a_cache_that_others_can_write_are_made_again(
    tmp_path: Path, source: Path, files: str
) -> None:
    cache = tmp_path / "cache"
    umask = os.umask(0)
    try:
        _build(cache, source)
        assert _build(cache, source) == ["cached"]
    finally:
        os.umask(umask)
    made = list(cache.glob(files))
    assert made
    for file in made:
        file.chmod(0o666)
    _build(cache, source)
    # Only one of the compilers is needed, and examined again.
    assert any(file.stat().st_mode & 0o022 == 0 for file in made)
    assert _build(cache, source) == ["cached"]


def test_folders_of_sources(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with SourceFolders(cache) as folders:
        folders.folder({"k.cpp": b"one"})
    cache.chmod(0o777)
    with SourceFolders(cache) as folders, pytest.raises(ConfigError, match="mode 0777"):
        folders.folder({"k.cpp": b"one"})


def test_the_doctor_reports_a_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("PTO_CACHE_DIR", str(cache))
    assert main(["doctor"]) != 0
    assert "mode 0777" in capsys.readouterr().out
