"""The tests of each package, in an environment that has only it and what its README names.

The environments are links, so what costs time is the tests. Left out are native programs, which use
no installed package, and the tests that run alone. The slow profile leaves the slow tests of
plugins to this file. Other profiles run the other tests; the first of each file runs here, too.
With ``--full``, all of them do.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from profiles import NATIVE_FILES
from reduced_sets import CORE, OURS, make

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    "pto_core",
    *sorted(f"plugins/{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml")),
]
PAIRS = "tests/conformance/test_installed_pairs.py"
TRANSPORTS = "tests/conformance/test_installed_transports.py"
# The core's tests that need no plugin, without those that mostly wait for a compiler.
OF_CORE = [
    f"pto_core/tests/{folder}"
    for folder in ("cases", "config", "errors", "log", "plugins", "trust")
]
# What runs in the environment of a plugin beside its own tests. The environment of backend_sim has
# the same pairs as that of runtime_hbg.
ALSO = {
    "plugins/runtime_hbg": PAIRS,
    "plugins/runtime_pto2": PAIRS,
    "plugins/transport_shm": TRANSPORTS,
}
NEEDS = re.compile(r"\bThe tests also need (`ptorun-[^.]*`)\.")


def distribution(folder: str) -> str:
    return CORE if folder == "pto_core" else OURS + Path(folder).name.replace("_", "-")


def needed(folder: str) -> list[str]:
    """Return the distributions that the README of a package names for its tests."""
    found = NEEDS.search(" ".join((ROOT / folder / "README.md").read_text().split()))
    return re.findall(r"`(ptorun-[\w-]+)`", found[1]) if found else []


def paths(folder: str) -> list[str]:
    if folder == "pto_core":
        return OF_CORE
    return [folder, *([ALSO[folder]] if folder in ALSO else [])]


@pytest.mark.timeout(900)  # the time limit of all tests of a package
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_passes_its_tests_without_others(
    folder: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    alone = make(tmp_path / "environment", distribution(folder), *needed(folder))
    options = (
        "-q",
        f"--profile={'all' if request.config.getoption('full') else 'sample'}",
        "--no-skips",
        *(f"--ignore-glob=*/{name}" for name in NATIVE_FILES),
        "-p",
        "no:cacheprovider",
    )
    done = alone.run(alone.python, "-m", "pytest", *options, *paths(folder), cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_page_has_a_row_for_each_package() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    for folder in FOLDERS:
        also = ", ".join(f"`{name}`" for name in needed(folder)) or "-"
        ran = ", ".join(f"`{path}`" for path in paths(folder))
        assert f"| `{distribution(folder)}` | {also} | {ran} |\n" in page
