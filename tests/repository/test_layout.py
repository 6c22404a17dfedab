"""Every package has the structure of the design, and one name and version."""

from __future__ import annotations

import re


def test_every_package_has_the_same_shape(checkout):
    for package in checkout.packages:
        for part in ("pyproject.toml", "README.md", "LICENSE", "tests"):
            assert (package.folder / part).exists(), f"{package.folder} lacks {part}"
        for part in ("__init__.py", "py.typed"):
            assert (package.source / part).is_file(), f"{package.source} lacks {part}"
        inside = {path.name for path in (package.folder / "src").iterdir()}
        is_compat = package.folder.name == "compat_simpler"
        published = {"_task_interface", "simpler", "simpler_setup"} if is_compat else set()
        modules = {name for name in inside if not name.startswith(".")}
        assert modules == {package.import_name, *published}


def test_every_plugin_folder_is_a_package_and_names_its_family(checkout):
    folders = [path for path in (checkout.root / "plugins").iterdir() if path.is_dir()]
    assert sorted(folders) == sorted(plugin.folder for plugin in checkout.plugins)
    for folder in folders:
        families = "backend|runtime|transport|scheduler|launcher|compat"
        assert folder.name in {"devkit", "insight"} or re.fullmatch(
            rf"({families})_[a-z0-9]+", folder.name
        )


def test_distribution_names_follow_the_folders(checkout):
    for package in checkout.packages:
        expected = "ptorun-" + package.import_name.removeprefix("pto_").replace("_", "-")
        assert package.pyproject["project"]["name"] == expected


def test_one_version_and_one_licence(checkout):
    projects = [package.pyproject["project"] for package in checkout.packages]
    assert len({project["version"] for project in projects}) == 1
    assert {project["license"] for project in projects} == {"Apache-2.0"}
    assert {project["requires-python"] for project in projects} == {">=3.11"}
    licence = (checkout.root / "LICENSE").read_bytes()
    for package in checkout.packages:
        assert (package.folder / "LICENSE").read_bytes() == licence, package.folder


def test_the_laptop_set_is_every_plugin_that_one_machine_needs(checkout):
    laptop = set(checkout.core.pyproject["project"]["optional-dependencies"]["sim"])
    assert laptop == {
        *("ptorun-backend-sim", "ptorun-runtime-hbg", "ptorun-runtime-pto2"),
        *("ptorun-transport-shm", "ptorun-insight"),
    }


def test_plugins_build_against_the_core_by_its_published_name(checkout):
    for plugin in checkout.plugins:
        build = plugin.pyproject["build-system"]["requires"]
        run = plugin.pyproject["project"]["dependencies"]
        assert any(requirement.startswith("ptorun-core") for requirement in build), plugin.folder
        assert any(requirement.startswith("ptorun-core") for requirement in run), plugin.folder


def test_examples_are_numbered_and_explained(checkout):
    folders = [path for path in (checkout.root / "examples").iterdir() if path.is_dir()]
    folders = [path for path in folders if path.name != "__pycache__"]
    assert folders
    for folder in folders:
        assert re.fullmatch(r"\d\d_[a-z0-9_]+", folder.name)
        lines = (folder / "README.md").read_text().splitlines()
        assert len(lines) <= 50, f"{folder.name}/README.md is more than one screen"


def test_decision_records_are_numbered_once(checkout):
    numbers = [path.name[:4] for path in (checkout.root / "docs" / "adr").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers)), f"two decision records share a number: {numbers}"
