"""The fence of a remote child whose relay was killed."""

from __future__ import annotations

import time

from pto_core.worker.processes import ChildExit
from pto_transport_zmq.remote.lease import SECOND, Lease
from pto_transport_zmq.remote.relay import SESSION_OVER, AgentAddress
from pto_transport_zmq.remote.remote_child import RemoteSessionName, SessionFence


def fence() -> SessionFence:
    """Return a fence whose program, which ends the session, fails at once."""
    made = SessionFence()
    agent = AgentAddress("tcp://127.0.0.1:9", None, "no_such_link", False)
    made.name = RemoteSessionName(agent, bytes(16), 1, SECOND)
    return made


def test_a_fence_whose_program_fails_lasts_as_long_as_the_lease() -> None:
    made, begin = fence(), time.monotonic()
    made.begin(ChildExit(0, "L4/host0", 1, signal=9))
    while not made.is_over():
        time.sleep(0.01)
    assert time.monotonic() - begin >= Lease(SECOND).relay_ns / 1e9


def test_a_relay_that_has_ended_its_session_needs_no_fence() -> None:
    for code in (0, SESSION_OVER):
        made = fence()
        made.begin(ChildExit(0, "L4/host0", 1, exit_code=code))
        assert made.is_over()
