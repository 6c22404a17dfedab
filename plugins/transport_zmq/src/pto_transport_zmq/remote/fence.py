"""The fence of a remote child: it delays the report of a loss until the remote session is over.

A relay that exits by itself has waited for the end of its session. A killed relay has not: then
another program asks the agent to end the session, or waits until the lease has passed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from dataclasses import dataclass

from pto_core.errors import PtoError
from pto_core.hierarchy.processes import ChildExit
from pto_core.hierarchy.processes.starting import interpreter_command
from pto_transport_zmq.remote.agent_messages import End, Ended
from pto_transport_zmq.remote.lease import Lease
from pto_transport_zmq.remote.relay import SESSION_OVER, AgentAddress, Contact

_TRY_S = 1.0


@dataclass(frozen=True)
class RemoteSessionName:
    """One epoch of a session, and the agent that serves it."""

    agent: AgentAddress
    session: bytes
    epoch: int
    lease_ns: int


class SessionFence:
    """A fence, see ``pto_core.hierarchy.remote_transport``. ``name``: the newest epoch."""

    def __init__(self) -> None:
        self.name: RemoteSessionName | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._until = 0.0  # end of the lease: the session is over then, even if the program fails

    def begin(self, ended: ChildExit) -> None:
        """Start the program that ends the session, if its relay has not done so."""
        name = self.name
        if ended.exit_code in (0, SESSION_OVER) or name is None:
            return
        command = interpreter_command(
            f"{__name__}:main",
            name.agent.address,
            name.agent.keys or "",
            name.agent.transport,
            int(name.agent.is_insecure),
            name.session.hex(),
            name.epoch,
            name.lease_ns,
        )
        self._program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._until = time.monotonic() + Lease(name.lease_ns).relay_ns / 1e9

    def is_over(self) -> bool:
        """Return whether the session is over."""
        if self._program is not None:
            code = self._program.poll()
            if code is None or (code and time.monotonic() < self._until):
                return False
        self._program = None
        return True


def main() -> None:
    """End a session: return when its agent has confirmed it, or when the lease has passed."""
    address, keys, transport, is_insecure, session, epoch, lease_ns = sys.argv[1:]
    until = time.monotonic() + Lease(int(lease_ns)).relay_ns / 1e9
    contact = Contact.of(AgentAddress(address, keys or None, transport, bool(int(is_insecure))))
    request = End(bytes.fromhex(session), int(epoch))
    while (left_s := until - time.monotonic()) > 0:
        with contextlib.suppress(PtoError):
            if isinstance(contact.ask(request, min(_TRY_S, left_s)), Ended):
                return
