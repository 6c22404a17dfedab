"""A cluster that requires a token."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.ray

# A new interpreter, because Ray reads the token once in a process and its forked children.
CONNECT = """
import sys
from pto_core.config import load_core
from pto_core.errors import LinkError
from pto_core.interfaces import AgentCommand
from pto_launcher_ray import plugin

try:
    plugin.open(AgentCommand("key", "zmq"), load_core({"ray_address": sys.argv[1]})).close()
except LinkError as error:
    print(error.message)
"""


def test_a_program_needs_the_token_of_the_cluster(
    start_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token-of-the-cluster-in-this-test")
    with start_cluster() as cluster:

        def refusal() -> str:
            command = [sys.executable, "-c", CONNECT, cluster.address]
            return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

        assert refusal() == ""
        monkeypatch.setenv("RAY_AUTH_TOKEN", "another-token-which-is-not-the-one")
        assert "does not accept this program" in refusal()
        monkeypatch.delenv("RAY_AUTH_MODE")
        assert "does not accept this program" in refusal()
