"""The lists of the quick profile name existing tests; each example and native test is run."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from profiles import OTHER_PROFILES, Profiles, beginnings

ROOT = Path(__file__).resolve().parents[2]
LISTS = Profiles.read()


def test_each_entry_names_tests_that_exist() -> None:
    for entry in (*LISTS.alone, *LISTS.whole, *LISTS.slow):
        path, *names = entry.partition("[")[0].split("::")
        file = ROOT / path
        assert file.exists(), f"quick.toml names {path}, which does not exist"
        assert file.is_file() or not names
        for name in names:
            assert re.search(rf"^ *(def|class) {name}\b", file.read_text(), re.M), entry


@pytest.mark.parametrize(
    ("path", "is_expected"),
    [("a", True), ("a/b.py", True), ("a/c.py", False), ("c/d/e.py", True), ("c/de.py", False)],
)
def test_only_files_that_can_contain_tests_to_run_alone_are_collected(path, is_expected) -> None:
    lists = Profiles(alone=frozenset({"a/b.py::test_it", "c/d"}), slow={})
    assert lists.may_contain_alone(path) == is_expected


def test_no_entry_is_in_two_lists() -> None:
    for whole in LISTS.whole:
        left_out = [
            entry
            for entry in LISTS.slow
            if whole in beginnings(entry) or entry in beginnings(whole)
        ]
        assert not left_out, f"the quick profile must run all of {whole}"
        assert not LISTS.is_slow(f"{whole}::test_it[init_at_start_of_child]")


def test_a_slow_parameter_is_a_whole_part_of_a_test_id() -> None:
    assert LISTS.is_slow("tests/workers/test_new.py::test_it[raw-init_at_start_of_child]")
    assert not LISTS.is_slow("tests/workers/test_new.py::test_it[by init_at_start_of_child]")
    assert not LISTS.is_slow("tests/workers/test_new.py::test_init_at_start_of_child")


def test_each_example_and_each_native_unit_test_is_run(checkout) -> None:
    files = ["tests/test_examples.py", "pto_core/tests/engine/test_structures.py"]
    files += [str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_native.py")]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in sorted(path.name for path in (ROOT / "examples").glob("[0-9]*")):
        assert re.search(rf"::test_\w+\[{folder}\b", done.stdout), f"no test of {folder}"
    for source in checkout.with_suffix(".cpp"):
        if not source.stem.endswith("_test"):
            continue
        if "int main(" in (ROOT / source).read_text():
            assert f"::test_plain[{source.stem}]" in done.stdout, source
        else:  # a source of another program
            assert source.name in (ROOT / source.parent / "CMakeLists.txt").read_text(), source


@dataclass
class Item:
    """A stand-in for a test, with the attributes that the plugin reads."""

    nodeid: str
    marker: str | None = None
    fixturenames: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> str | None:
        return self.marker if self.marker == name else None


def test_a_test_runs_in_one_call_of_one_profile() -> None:
    calls = [(p, load) for p in ("quick", "slow", "all") for load in ("parallel", "alone")]
    for node_id in (*LISTS.alone, *LISTS.slow, "tests/new/test_it.py::test_it"):
        selected = [call for call in calls if LISTS.selects(Item(node_id), *call)]
        profiles = [profile for profile, _ in selected]
        if LISTS.runs_without_others(node_id):
            assert profiles in (["quick", "all"], ["all"])
        else:
            assert profiles in (["quick", "all"], ["slow", "all"])
        assert len({load for _, load in selected}) == 1
        for marker in OTHER_PROFILES:
            assert not any(LISTS.selects(Item(node_id, marker), *call) for call in calls)


def test_slow_tests_of_plugins_run_in_the_environments_without_other_plugins() -> None:
    lists = Profiles(alone=frozenset({"plugins/x/tests/test_ends.py"}), slow={"plugins": 1.0})
    for file, is_left_out in (("new", True), ("native", False), ("ends", False)):
        node_id = f"plugins/x/tests/test_{file}.py::test_it"
        load = "alone" if file == "ends" else "parallel"
        assert lists.selects(Item(node_id), "slow", load) != is_left_out
        path = node_id.partition("::")[0]
        assert lists.leaves_out(path, "slow", "parallel") == is_left_out
        assert lists.selects(Item(node_id), "all", load)


def test_a_sample_has_the_slow_tests_of_plugins_and_one_test_of_each_file_and_class() -> None:
    slow = {"plugins/x/test_a.py::test_3": 1.0, "tests/test_c.py::test_2": 1.0}
    names = ("a.py::test_1", "a.py::test_2", "a.py::test_3", "b.py::test_1")
    items = [Item(f"plugins/x/test_{name}") for name in names]
    of_core = ("test_1", "test_2", "TestA::test_1[a::b]", "TestA::test_2", "TestB::test_1")
    items += [Item(f"tests/test_c.py::{name}") for name in of_core]
    sample = Profiles(alone=frozenset(), slow=slow).sample(items)
    assert [items.index(item) for item in sample] == [0, 2, 3, 4, 6, 8]


def test_a_test_that_needs_a_native_build_is_slow() -> None:
    item = Item("tests/new/test_it.py::test_it", fixturenames=("vendor", "native_build"))
    assert not LISTS.selects(item, "quick", "parallel")
    assert LISTS.selects(item, "slow", "parallel")


def test_an_entry_is_a_whole_part_of_a_node_id() -> None:
    assert beginnings("tests/a.py::TestB::test_c[1-d]") == [
        "tests/a.py::TestB::test_c[1-d]",
        "tests",
        "tests/a.py",
        "tests/a.py::TestB",
        "tests/a.py::TestB::test_c",
    ]
