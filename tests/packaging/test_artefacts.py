"""The content of wheels and sdists, and their metadata."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser

import pytest

pytestmark = pytest.mark.toolchain


def wheel_names(built):
    with zipfile.ZipFile(built.wheel) as archive:
        return archive.namelist()


def has_native_code(built):
    with zipfile.ZipFile(built.wheel) as archive:
        return any(archive.read(name).startswith(b"\x7fELF") for name in archive.namelist())


def wheel_metadata(built):
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def sdist_names(built):
    with tarfile.open(built.sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def test_a_wheel_contains_only_its_packages(wheelhouse):
    for built in wheelhouse.packages:
        tops = {name.partition("/")[0] for name in wheel_names(built)}
        others = {top for top in tops if not top.endswith(".dist-info")}
        sources = (built.folder / "src").iterdir()
        own = {one.name for one in sources if (one / "__init__.py").is_file()}
        assert built.import_name in own
        assert others == own, built.wheel.name


def test_a_wheel_is_typed_native_licensed_and_without_tests(wheelhouse):
    for built in wheelhouse.packages:
        names = wheel_names(built)
        assert f"{built.import_name}/py.typed" in names
        is_native = (built.folder / "CMakeLists.txt").is_file()
        assert has_native_code(built) == is_native, built.wheel.name
        assert any(".dist-info/" in name and name.endswith("/LICENSE") for name in names)
        own = [name for name in names if not name.startswith("pto_devkit/skeleton/")]
        assert not [name for name in own if "/tests/" in name or "__pycache__" in name]
        assert not [name for name in names if name.endswith((".o", ".a", ".pyc"))]


def test_the_core_ships_what_plugins_build_against(wheelhouse):
    names = wheel_names(wheelhouse.package("ptorun-core"))
    headers = sorted((wheelhouse.package("ptorun-core").folder / "include").rglob("*.h*"))
    assert headers
    for header in headers:
        relative = header.relative_to(wheelhouse.package("ptorun-core").folder).as_posix()
        assert f"pto_core/{relative}" in names
    assert any(name.startswith("pto_core/cmake/") and "Config" in name for name in names)


def test_the_devkit_ships_what_new_cases_and_plugins_are_made_of(wheelhouse):
    devkit = wheelhouse.package("ptorun-devkit")
    skeletons = devkit.folder / "src" / "pto_devkit" / "skeleton"
    parts = [path for path in skeletons.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {"CMakeLists.txt", "backend.cpp", "runtime.h"} <= {path.name for path in parts}
    made = {path.relative_to(devkit.folder).as_posix() for path in parts}
    assert made <= set(sdist_names(devkit))
    assert {name.removeprefix("src/") for name in made} <= set(wheel_names(devkit))


def test_metadata_names_only_our_names_and_the_licence(wheelhouse):
    for built in wheelhouse.packages:
        fields = wheel_metadata(built)
        assert fields["Name"] == built.distribution
        assert fields["License-Expression"] == "Apache-2.0"
        assert fields["Requires-Python"] == ">=3.11"
        required = [text for text in fields.get_all("Requires-Dist", []) if text.startswith("pto")]
        assert all(text.startswith("ptorun-") for text in required), required


def test_an_sdist_contains_sources_and_no_build_results(wheelhouse):
    for built in wheelhouse.packages:
        names = sdist_names(built)
        for part in ("pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt"):
            if (built.folder / part).is_file():
                assert part in names, f"{built.sdist.name} lacks {part}"
        wrong = [name for name in names if name.endswith((".so", ".o", ".pyc", ".whl"))]
        assert not wrong, wrong


def test_the_pins_cover_every_wheel_that_an_installation_needs(wheelhouse):
    lines = (wheelhouse.packages[0].folder.parent / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    pins = {name.lower().replace("-", "_"): version for name, version in pins.items()}
    ours = {built.wheel.name for built in wheelhouse.packages}
    for wheel in wheelhouse.folder.glob("*.whl"):
        if wheel.name not in ours:
            name, version = wheel.name.lower().split("-")[:2]
            assert pins.get(name) == version, f"{wheel.name} is not pinned in constraints.txt"
