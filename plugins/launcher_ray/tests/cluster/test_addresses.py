"""Addresses of clusters. These tests run before a cluster is started on this machine."""

from __future__ import annotations

import pytest

from pto_core.config import load_core
from pto_core.errors import LinkError, UsageError
from pto_core.interfaces import AgentCommand
from pto_devkit.transports.processes import apart
from pto_launcher_ray import plugin

pytestmark = pytest.mark.ray
AGENT = AgentCommand("key", "zmq")


# Invariant: The launcher never starts a cluster.
@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (None, UsageError, "no Ray cluster was found; set ray_address"),
        ("local", UsageError, "is 'local', for which Ray would start a cluster"),
        ("host1", UsageError, "'host1' is not the address of a Ray cluster; expected HOST:PORT"),
        ("127.0.0.1:1", LinkError, "no Ray cluster answers at 127.0.0.1:1: .*refused"),
    ],
)
@pytest.mark.parametrize("is_setting", [False, True])
def test_without_a_cluster_the_error_states_what_to_set(
    address: str | None,
    error: type[Exception],
    message: str,
    is_setting: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None and not is_setting:
        monkeypatch.setenv("RAY_ADDRESS", address)

    def body() -> None:
        with pytest.raises(error, match=message):
            plugin.open(AGENT, load_core({"ray_address": address} if is_setting else {}))

    apart(body)
