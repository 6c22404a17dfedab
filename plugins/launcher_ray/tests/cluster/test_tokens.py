"""A cluster that requires a token."""

from __future__ import annotations

from typing import Any

import pytest

from pto_core.config import load_core
from pto_core.errors import LinkError
from pto_core.interfaces import AgentCommand
from pto_devkit.transports.processes import apart
from pto_launcher_ray import plugin

pytestmark = pytest.mark.ray
AGENT = AgentCommand("key", "zmq")


def test_a_program_needs_the_token_of_the_cluster(
    start_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token-of-the-cluster-in-this-test")
    with start_cluster() as cluster:

        def connect() -> None:
            plugin.open(AGENT, load_core({"ray_address": cluster.address})).close()

        def is_refused() -> None:
            with pytest.raises(LinkError, match="does not accept this program"):
                connect()

        apart(connect)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "another-token-which-is-not-the-one")
        apart(is_refused)
        monkeypatch.delenv("RAY_AUTH_MODE")
        apart(is_refused)
