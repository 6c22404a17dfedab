"""Shared by all tests: the option for full counts, the check that CI skips nothing, and Ctrl-C."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Import the package now. Otherwise pytest uses the folder pto_core/ of the first test module as
# this package.
import pto_core  # noqa: F401

# Until all tests are collected; see pytest_collection_finish().
gc.disable()

# In tests/distributions, tests/native and tests/profiles.
pytest_plugins = ["fake_distributions", "native_builds", "profiles"]
BUILD_LIMIT_S = 2400
"""The time limit of tests that need a build. It is long, because builds share the machine."""

# Tests do not measure time: the machines are shared.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# A shell starts background jobs with SIGINT ignored, and children inherit this setting.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pto")
    group.addoption(
        "--full",
        action="store_true",
        help="run the full counts, such as 10,000 seeds, instead of the smaller counts of CI",
    )
    group.addoption(
        "--no-skips",
        action="store_true",
        help="fail tests that cannot run here, instead of skipping them",
    )
    group.addoption(
        "--card",
        metavar="NUMBER",
        type=number_of_driver,
        help="run the tests of Ascend cards on this device, instead of the fake device",
    )


def number_of_driver(card: str) -> str:
    """Return the driver's number of a card, whose number counts the visible devices as in CANN."""
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    numbers = visible.split(",") if visible else None
    if not card.isdecimal() or (numbers and int(card) >= len(numbers)):
        devices = f"ASCEND_RT_VISIBLE_DEVICES is {visible!r}" if visible else "the first one is 0"
        raise argparse.ArgumentTypeError(f"{card!r} is no number of a device; {devices}")
    return numbers[int(card)] if numbers else card


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raise the time limit of tests that need a build: the first one builds, the others wait.

    Tests that need a card and the kernel tile library are left out without them.
    """
    if config.getoption("card") is None or "PTO_ISA_ROOT" not in os.environ:
        items[:] = [item for item in items if item.get_closest_marker("needs_tiles") is None]
    for item in items:
        if {"native_build", "card", "wheelhouse"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collections, which would traverse all of them.

    There is none while tests are collected: that would take a fifth of the processor time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    refuse_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, Any]:
    report = yield
    refuse_skip(collector.config, report)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """With ``--card``, print what the tests ran on, and what they did not show."""
    number = config.getoption("card")
    if number is None:
        return
    terminalreporter.section(f"card {number} (--card)")
    pto = Path(sys.executable).with_name("pto")
    environment = {**os.environ, "ASCEND_RT_VISIBLE_DEVICES": number}
    checked = subprocess.run(
        [pto, "doctor", "--card"], env=environment, capture_output=True, text=True, check=False
    )
    terminalreporter.write_line(checked.stdout + checked.stderr)
    if "PTO_ISA_ROOT" not in os.environ:
        terminalreporter.write_line(
            "not shown: kernels with tiles, because PTO_ISA_ROOT is not set"
        )


def refuse_skip(config: pytest.Config, report: Any) -> None:
    """Turn a skip into a failure that states the reason; expected failures stay unchanged."""
    if config.getoption("no_skips") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"could not run, and --no-skips is given: {reason}"


@pytest.fixture(scope="session")
def folder_of_all(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return a temporary folder that all test processes of this call share."""
    own: Path = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one artefact cache for tests, so that each source is compiled once in a process."""
    return tmp_path_factory.mktemp("cache")
