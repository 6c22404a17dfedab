"""The kit finds the faults of a launcher: each broken one fails the test named here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pto_devkit.launchers import LauncherContract

MODULE = """
import time
from dataclasses import replace
from pto_transport_zmq.launchers import builtin
from pto_transport_zmq.link.loading import load_links

class Launcher(builtin.LocalLauncher):
{}

class Broken(builtin.Local):
    name = "broken"

    def open(self, agent, config):
        return Launcher(agent)

plugin = Broken()
"""
# The body of the class that is derived from the local launcher, and the test that must find the
# defect. A function `place` calls the correct one of the base class.
DEFECTS = {
    "places_one_agent_twice": (
        "def place(self, count, resources):\n    return [*super().place(1, resources)] * count",
        "agents_answer",
    ),
    "starts_too_few": (
        "def place(self, count, resources):\n    return super().place(count - 1, resources)",
        "agents_answer",
    ),
    "permits_another_client": (
        "def __init__(self, agent):\n"
        "    super().__init__(replace(agent, client=load_links('zmq').key_pair().public))",
        "agents_answer",
    ),
    "waits_for_its_agents": (
        "def place(self, count, resources):\n"
        "    time.sleep(1.5)\n"
        "    return super().place(count, resources)",
        "calls_return",
    ),
    "waits_for_the_end": (
        "def release(self, placement):\n    super().release(placement)\n    time.sleep(1.5)",
        "calls_return",
    ),
    "hides_the_error": (
        "def lost(self, placement):\n    return super().lost(placement) and 'it ended'",
        "failed_start",
    ),
    "does_not_release": ("def release(self, placement):\n    pass", "release"),
    "releases_all": (
        "def release(self, placement):\n"
        "    for each in self.placed:\n"
        "        super().release(each)",
        "release",
    ),
    "reports_no_loss": ("def lost(self, placement):\n    return None", "lost_agent"),
    "has_no_reason": (
        "def lost(self, placement):\n    return super().lost(placement) and ' '",
        "lost_agent",
    ),
    "does_not_close": ("def close(self):\n    pass", "close"),
    "collects_no_exits": (
        "def close(self):\n    for each in self.placed:\n        each.end()",
        "close",
    ),
    "survives_its_process": (
        "def start(self, command, name, host=None):\n"
        "    held = ['sh', '-c', 'sleep 30 | exec \"$@\"', 'sh', *command]\n"
        "    return super().start(held, name, host)",
        "killed_owner",
    ),
}
LIMIT_S = 8.0
ONE_TEST = """
import sys
from pto_devkit import ContractError
from pto_devkit.launchers import LauncherContract
from pto_devkit.transports import processes

class Subject(LauncherContract):
    launcher = "broken"

processes.LIMIT_S = float(sys.argv[1])
try:
    getattr(Subject(), sys.argv[2])()
except ContractError as failure:
    print("caught:", failure)
"""


def install(folder: Path, body: str) -> None:
    """Write the module of the broken launcher and the metadata of its distribution."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "pto_launcher_broken.py").write_text(MODULE.format(indented))
    metadata = folder / "pto_launcher_broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pto-launcher-broken\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[pto.launchers]\nbroken = pto_launcher_broken:plugin\n"
    )


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_launcher_is_caught(tmp_path: Path, defect: str) -> None:
    body, test = DEFECTS[defect]
    install(tmp_path, body)
    paths = (str(tmp_path), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", ONE_TEST, str(LIMIT_S), f"test_{test}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "caught:" in done.stdout


def test_every_test_of_the_contract_catches_something() -> None:
    contract = {name for name in vars(LauncherContract) if name.startswith("test_")}
    assert contract == {f"test_{test}" for _, test in DEFECTS.values()}
