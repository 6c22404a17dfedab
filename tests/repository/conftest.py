"""The data of the repository tests: the packages of this checkout and the files of its tree."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """One package folder of the workspace."""

    folder: Path
    pyproject: dict[str, Any]

    @property
    def import_name(self) -> str:
        name = self.folder.name
        return name if name == "pto_core" else f"pto_{name}"

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.import_name

    @property
    def entry_points(self) -> dict[str, dict[str, str]]:
        groups = self.pyproject["project"].get("entry-points", {})
        return {group: names for group, names in groups.items() if group.startswith("pto.")}


@dataclass(frozen=True)
class Checkout:
    """The tree under test: the files that git tracks, and those that it would add now."""

    root: Path
    files: tuple[Path, ...]
    packages: tuple[Package, ...]

    @property
    def core(self) -> Package:
        return next(p for p in self.packages if p.import_name == "pto_core")

    @property
    def plugins(self) -> list[Package]:
        return [p for p in self.packages if p.import_name != "pto_core"]

    def with_suffix(self, *suffixes: str) -> list[Path]:
        return [path for path in self.files if path.suffix in suffixes]

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


@pytest.fixture(scope="session")
def checkout() -> Checkout:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in sorted(set(listing.split("\0"))) if name)
    folders = [ROOT / "pto_core", *sorted((ROOT / "plugins").iterdir())]
    return Checkout(
        root=ROOT,
        files=tuple(path for path in paths if path.is_file()),
        packages=tuple(
            Package(folder, tomllib.loads((folder / "pyproject.toml").read_text()))
            for folder in folders
            if (folder / "pyproject.toml").is_file()
        ),
    )
