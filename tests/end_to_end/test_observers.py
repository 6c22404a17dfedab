"""An installed observer is called for each run and each case, and for no task."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_distributions import Site

from pto_core import kernel, open_device

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_vector"

# An observer that appends a line for each call of a hook: its name, and the run or case.
OBSERVER = """
import os
from pto_core.plugins.hooks import hookimpl

def note(*parts):
    with open(os.environ["CALLS"], "a") as calls:
        print(*parts, file=calls)

@hookimpl
def pto_run_started(info):
    note("pto_run_started", info.runtime)

@hookimpl
def pto_run_finished(info, report, error):
    note("pto_run_finished", report.tasks, error)

@hookimpl
def pto_case_started(info):
    note("pto_case_started", info.name)

@hookimpl
def pto_case_finished(info, exit_code):
    note("pto_case_finished", info.name, exit_code)
"""


@pytest.fixture
def calls(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the observer, and return the file with its calls."""
    site.observer("noting", OBSERVER)
    monkeypatch.setenv("CALLS", str(site.folder / "calls"))
    return site.folder / "calls"


@kernel(core="aiv")
def nothing() -> None:
    pass


def test_hooks_are_called_once_a_run_not_once_a_task(calls: Path) -> None:
    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        for tasks in (1, 100):

            def graph(rt, tasks=tasks):
                for _ in range(tasks):
                    rt.submit(nothing)

            device.run(graph)
    runtime = "tensormap_and_ringbuffer"
    assert calls.read_text().splitlines() == [
        f"pto_run_started {runtime}",
        "pto_run_finished 1 None",
        f"pto_run_started {runtime}",
        "pto_run_finished 100 None",
    ]


def test_hooks_of_a_case_are_called_around_its_run(calls: Path, case) -> None:
    case.variables["PYTHONPATH"] = str(calls.parent)
    case.variables["CALLS"] = str(calls)
    done = case.run_on(EXAMPLE, "-q")
    assert done.returncode == 0, done.stderr
    lines = calls.read_text().splitlines()
    # the hooks of a case are called in the parent process
    of_case = [line for line in lines if line.startswith("pto_case")]
    assert of_case == ["pto_case_started constant", "pto_case_finished constant 0"]
    assert len([line for line in lines if line.startswith("pto_run_started")]) == 1
