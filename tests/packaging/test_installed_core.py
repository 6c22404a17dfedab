"""The installed packages are those of this checkout, not foreign packages with similar names."""

from __future__ import annotations

import hashlib
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from pto_core import _native, _worker

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = tuple(
    path.parent
    for path in (
        ROOT / "pto_core" / "pyproject.toml",
        *sorted(ROOT.glob("plugins/*/pyproject.toml")),
    )
)
STRANGERS = (
    *("pto-core", "pto", "pto-backend-a2a3", "pto-backend-sim", "pto-runtime-hbg"),
    *("pto-runtime-pto2", "pto-transport-shm", "pto-transport-zmq", "pto-launcher-ray"),
    *("pto-devkit", "pto-insight"),
)


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def import_name(folder: Path) -> str:
    return folder.name if folder.name == "pto_core" else f"pto_{folder.name}"


def installed(folder: Path) -> Path:
    spec = find_spec(import_name(folder))
    assert spec is not None, f"{folder.name} is not installed"
    assert spec.origin is not None, f"{folder.name} is a namespace, not a package"
    return Path(spec.origin).parent


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_installed_files_are_the_checkouts(folder):
    mine = digests(folder / "src" / import_name(folder))
    theirs = digests(installed(folder))
    stale = sorted(name for name in mine if theirs.get(name) != mine[name])
    assert not stale, f"installed {folder.name} differs; run ./quickstart setup: {stale}"
    extra = {name for name in theirs.keys() - mine.keys() if name.endswith(".py")}
    assert not extra, f"installed {folder.name} has files that the checkout lacks: {extra}"


def test_the_installed_headers_are_the_checkouts():
    mine = digests(ROOT / "pto_core" / "include")
    theirs = digests(installed(ROOT / "pto_core") / "include")
    assert mine == theirs


NATIVE_SOURCES = {
    _native: (*("native/*.cpp", "native/*.hpp", "include/pto/abi/*.h"),),
    _worker: (
        *("native/*.cpp", "native/*.hpp", "native/worker/*.cpp", "native/worker/*.hpp"),
        *("native/worker/*/*.cpp", "native/worker/*/*.hpp"),
        *("include/pto/*/*.h", "include/pto/*/*.hpp"),
    ),
}


@pytest.mark.parametrize("module", NATIVE_SOURCES, ids=lambda module: module.__name__)
def test_a_native_module_was_built_from_the_checkout(module):
    core = ROOT / "pto_core"
    sources = [path for pattern in NATIVE_SOURCES[module] for path in core.glob(pattern)]
    listing = "".join(
        f"{hashlib.sha256((core / name).read_bytes()).hexdigest()} {name}\n"
        for name in sorted(path.relative_to(core).as_posix() for path in sources)
    )
    assert module.source_digest == hashlib.sha256(listing.encode()).hexdigest(), (
        "the native module was built from other sources; run ./quickstart setup"
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_installed_distribution_is_ours(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    owners = metadata.packages_distributions()[import_name(folder)]
    assert set(owners) == {project["name"]}
    assert metadata.version(project["name"]) == project["version"]


@pytest.mark.parametrize("name", STRANGERS)
def test_no_foreign_distribution_of_a_similar_name_is_installed(name):
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version(name)
