"""The log level: which messages appear on standard error, and which setting has precedence."""

from __future__ import annotations

import pytest


@pytest.fixture
def talkative(case):
    """Return a case that logs its graph at level info, and a warning for an unknown variable."""
    case.variables["PTO_SIM_SED"] = "1"
    return case.graph("host_build_graph", "runtime->print_runtime();")


def shown(done) -> tuple[bool, bool]:
    """Return whether the warning and the graph are on standard error; the run must pass."""
    assert done.returncode == 0, done.stderr
    assert "tasks, " not in done.stdout
    return "PTO_SIM_SED" in done.stderr, "host_build_graph: 0 tasks, 0 edges" in done.stderr


EXPECTED = {
    "error": (False, False),
    "warn": (True, False),
    "info": (True, True),
    "debug": (True, True),
}


def test_environment_and_default(talkative) -> None:
    assert shown(talkative.run()) == EXPECTED["warn"]
    talkative.variables["PTO_LOG_LEVEL"] = "info"
    assert shown(talkative.run()) == EXPECTED["info"]


def test_option_beats_the_environment(talkative) -> None:
    """Each level shows messages of this severity or higher."""
    for level, expected in EXPECTED.items():
        talkative.variables["PTO_LOG_LEVEL"] = "debug" if level in ("error", "warn") else "error"
        assert shown(talkative.run("--log-level", level)) == expected, level
