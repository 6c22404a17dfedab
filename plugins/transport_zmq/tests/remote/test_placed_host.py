"""The host of one child: how long its placement may take."""

from __future__ import annotations

from typing import cast

import pytest

from pto_core.errors import ChildStartError
from pto_transport_zmq.remote.placements import LauncherClient, PlacedHost
from pto_transport_zmq.remote.relay import AgentAddress

AGENT = AgentAddress("tcp://127.0.0.1:1", None, "zmq", False)


class Launcher:
    """The side of the parent of a launcher, as a PlacedHost uses it."""

    launcher = "slow"
    timeout_s = 60.0

    def __init__(self) -> None:
        self.agents: dict[int, AgentAddress | Exception | None] = {}

    def begin(self) -> int:
        self.agents[len(self.agents)] = None
        return len(self.agents) - 1

    def release(self, number: int) -> None: ...

    def agent(self, number: int) -> AgentAddress | None:
        found = self.agents[number]
        if isinstance(found, Exception):
            raise found
        return found

    def waits_for(self, number: int) -> str:
        return f"host {number} has no free NPU"


# Invariant: A placement that waits longer than 5 s is logged once, with the reason of the launcher.
def test_a_placement_that_waits_is_logged_once_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    launcher, now = Launcher(), [100.0]
    host = PlacedHost(cast(LauncherClient, launcher), "L4/host0", lambda: now[0])
    assert not host.is_placing
    for waited_s in (0, 4.9, 5.1, 20, 59.9):
        now[0] = 100 + waited_s
        assert host.agent() is None
        assert host.is_placing
        logged = capsys.readouterr().err
        assert logged.count("host not placed yet") == (waited_s == 5.1)
        if logged:
            assert "L4/host0" in logged
            assert "slow" in logged
            assert "host 0 has no free NPU" in logged
    launcher.agents[0] = AGENT
    assert host.agent() == AGENT
    assert not host.is_placing
    assert host.loss() is None
    launcher.agents[0] = ChildStartError("the agent on h1 has ended")
    assert host.loss() == "the agent on h1 has ended"
    host.release()
    assert host.loss() is None

    assert host.agent() is None
    now[0] += 5.1
    assert host.agent() is None
    assert "host 1 has no free NPU" in capsys.readouterr().err
    host.release()
    assert not host.is_placing
    assert host.agent() is None
    now[0] += 60.1
    with pytest.raises(ChildStartError, match="placed no host after 60 s: host 2 has no free NPU"):
        host.agent()
