"""The pytest plugin behind `./quickstart test`: it selects tests, and records their cost.

`quick.toml` lists the tests that the quick profile leaves out, and the tests that run alone.
Without the option `--profile`, pytest runs all tests that it collects.
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
import tomllib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

LISTS = Path(__file__).with_name("quick.toml")
OTHER_PROFILES = ("toolchain", "ray", "torch")
"""The markers of tests that need more than the machine of the quickstart."""
BUILDS = frozenset({"native_build", "card"})
"""The fixtures that build native tests; ``card`` does so if no card is named."""
NATIVE_FILES = ("test_native.py", "test_device_process.py")
"""The files of plugins whose tests run native programs, which use no installed package."""
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass(frozen=True)
class Profiles:
    """The lists of `quick.toml`. An entry is the beginning of a node id, or a parameter."""

    alone: frozenset[str]
    slow: dict[str, float]
    whole: frozenset[str] = frozenset()
    slow_parameters: frozenset[str] = frozenset()

    @classmethod
    @functools.cache
    def read(cls) -> Profiles:
        """Read the lists of this checkout."""
        tables = tomllib.loads(LISTS.read_text())
        return cls(
            frozenset(tables["alone"]),
            tables["slow"],
            frozenset(tables["whole"]),
            frozenset(tables["slow_parameters"]),
        )

    def runs_alone(self, node_id: str) -> bool:
        """Return whether a test must run while no other test runs."""
        return not self.alone.isdisjoint(beginnings(node_id))

    def may_contain_alone(self, path: str) -> bool:
        """Return whether a file or folder may contain tests that run alone."""
        files = {entry.partition("::")[0] for entry in self.alone}
        return any(path in beginnings(file) or file in beginnings(path) for file in files)

    def is_slow(self, node_id: str) -> bool:
        """Return whether the lists leave a test out of the quick profile."""
        entries = beginnings(node_id)
        if not self.whole.isdisjoint(entries):
            return False
        parameters = node_id.partition("[")[2].rstrip("]").split("-")
        return not (
            self.slow_parameters.isdisjoint(parameters) and self.slow.keys().isdisjoint(entries)
        )

    def runs_without_others(self, node_id: str) -> bool:
        """Return whether tests/packaging/test_plugins_alone.py runs a test of a plugin."""
        path = node_id.partition("::")[0]
        is_native = path.endswith(NATIVE_FILES)
        return path.startswith("plugins/") and not is_native and not self.runs_alone(node_id)

    def sample(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Return the slow tests that run only without other plugins, and the first of each place.

        A place is a file, or a class in it.
        """

        def place(item: pytest.Item) -> str:
            return item.nodeid.partition("[")[0].rpartition("::")[0]

        firsts = {place(item): item for item in reversed(items)}
        return [
            item
            for item in items
            if item is firsts[place(item)]
            or (self.runs_without_others(item.nodeid) and self.profile_of(item) == "slow")
        ]

    def selects(self, item: pytest.Item, profile: str, load: str) -> bool:
        """Return whether a test belongs to a profile, and to its pytest call for ``load``."""
        if any(map(item.get_closest_marker, OTHER_PROFILES)):
            return False
        if profile == "slow" and self.runs_without_others(item.nodeid):
            return False
        in_profile = profile in ("all", "sample", self.profile_of(item))
        return in_profile and self.runs_alone(item.nodeid) == (load == "alone")

    def leaves_out(self, path: str, profile: str | None, load: str) -> bool:
        """Return whether a pytest call for ``load`` selects no test of a file or folder."""
        if profile == "quick" and path in self.slow:
            return True
        is_elsewhere = profile == "slow" and path.endswith(".py") and self.runs_without_others(path)
        is_left_out = is_elsewhere or (profile is not None and load == "alone")
        return is_left_out and not self.may_contain_alone(path)

    def profile_of(self, item: pytest.Item) -> str:
        """Return ``quick`` or ``slow``; a test that needs a native build is slow."""
        needs_build = not BUILDS.isdisjoint(getattr(item, "fixturenames", ()))
        return "slow" if needs_build or self.is_slow(item.nodeid) else "quick"


def beginnings(node_id: str) -> list[str]:
    """Return a node id and its beginnings: the folders, file, class and function of the test."""
    return [node_id, *(node_id[: end.start()] for end in re.finditer(r"/|::|\[", node_id))]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("profiles of ./quickstart test")
    group.addoption("--profile", choices=("quick", "slow", "all", "sample"))
    group.addoption("--load", choices=("parallel", "alone"), default="parallel")
    group.addoption("--costs", metavar="FILE", help="append the cost of each test to a file")
    group.addoption("--counts", metavar="FILE", help="write the number of tests by outcome")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the files that have no test for this call: they take seconds in each process."""
    if not collection_path.is_relative_to(config.rootpath):
        return None
    marker = config.getoption("markexpr")
    if marker in OTHER_PROFILES and collection_path.match("test_*.py"):
        return None if marker in collection_path.read_text() else True
    profile, load = config.getoption("profile"), config.getoption("load")
    path = collection_path.relative_to(config.rootpath).as_posix()
    return True if Profiles.read().leaves_out(path, profile, load) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    profile, load = config.getoption("profile"), config.getoption("load")
    if profile is None:
        return
    lists = Profiles.read()
    selected = [item for item in items if lists.selects(item, profile, load)]
    if profile == "sample":
        selected = lists.sample(selected)
    config.hook.pytest_deselected(items=list(set(items) - set(selected)))
    items[:] = selected


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record processor and wall seconds; child processes count once they were waited for."""
    costs = item.config.getoption("costs")
    if costs is None:
        return (yield)
    used_s, begin_s = processor_s(), time.monotonic()
    result = yield
    used_s, wall_s = processor_s() - used_s, time.monotonic() - begin_s
    with open(costs, "a") as file:
        profile = Profiles.read().profile_of(item)
        file.write(f"{used_s:.2f}\t{wall_s:.2f}\t{profile}\t{item.nodeid}\n")
    return result


def processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.getoption("counts")
    if counts is not None:
        numbers = {name: len(terminalreporter.stats.get(name, ())) for name in OUTCOMES}
        Path(counts).write_text(json.dumps(numbers))
