"""The parts of the design conform to their interfaces, and the check rejects other objects.

Other tests check the skeletons of ``pto new plugin``, which are plugins of third parties, and the
ends of connections of a transport and a link.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tcp_links
from packets import source
from test_users_programs import errors, mypy

pytestmark = pytest.mark.toolchain

CONFORMANCE = Path(__file__).with_name("conformance.py")
ANNOTATIONS = {
    "backend": "Backend",
    "runtime": "Runtime",
    "transport": "PythonTransport",
    "scheduler": "SchedulerPlugin",
    "launcher": "LauncherPlugin",
}


def test_every_part_conforms(cache: Path) -> None:
    assert errors(mypy(CONFORMANCE, cache)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ReferenceEngine(configuration, policy=policy),", "configuration,"),
        ("(native: pto_core.Orchestrator)", "(native: pto_core.TaskArgs)"),
        ("[placement.least_loaded_plugin, placement.near_inputs]", "[placement.least_loaded]"),
        ("pto_runtime_pto2.plugin,", "pto_backend_sim.plugin,"),
    ],
)
def test_a_part_that_does_not_conform_is_found(cache, tmp_path, old, new) -> None:
    text = CONFORMANCE.read_text()
    assert old in text
    path = tmp_path / "conformance.py"
    path.write_text(text.replace(old, new))
    assert errors(mypy(path, cache))


def test_the_ends_of_a_transport_conform(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "packets_ends.py"
    path.write_text(
        source()
        + "\nfrom pto_core.interfaces import ChildEnd, Endpoint, PythonTransport\n\n"
        + "checked: PythonTransport = plugin\n"
        + "def ends(one: PacketsEndpoint, other: PacketsChildEnd) -> tuple[Endpoint, ChildEnd]:\n"
        + "    return one, other\n"
    )
    assert errors(mypy(path, cache)) == []
    text = path.read_text()
    assert "submit, poll =" in text
    # A new name is needed, because mypy does not read a file again if size and second of change are
    # equal.
    path = tmp_path / "packets_without_poll.py"
    path.write_text(text.replace("submit, poll =", "submit, pool ="))
    assert errors(mypy(path, cache))


def test_the_ends_of_a_link_conform(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "tcp_ends.py"
    path.write_text(
        tcp_links.source()
        + "\nfrom pto_transport_zmq.link.interface import Link, Links, Listener\n\n"
        + "checked: Links = plugin.links\n"
        + "def ends(one: ListeningEnd, other: DiallingEnd) -> tuple[Listener, Link]:\n"
        + "    return one, other\n"
    )
    assert errors(mypy(path, cache)) == []
    text = path.read_text()
    assert "def allow(self" in text
    path = tmp_path / "tcp_without_allow.py"
    path.write_text(text.replace("def allow(self", "def admit(self"))
    assert errors(mypy(path, cache))


@pytest.mark.parametrize("family", ANNOTATIONS)
def test_a_new_plugin_conforms(cache: Path, tmp_path: Path, family: str) -> None:
    pto = Path(sys.executable).with_name("pto")
    command = [pto, "new", "plugin", family, "wren"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    package = tmp_path / f"pto-{family}-wren" / "src" / f"pto_{family}_wren"
    interface = ANNOTATIONS[family]
    (package / "check.py").write_text(
        f"from pto_core.interfaces import {interface}\n\nfrom . import plugin\n\n"
        f"checked: {interface} = plugin\n"
    )
    assert errors(mypy(package.parent, cache)) == []
