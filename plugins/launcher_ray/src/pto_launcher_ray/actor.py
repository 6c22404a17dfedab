"""The Ray actor that runs an agent on a node."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import ray

from pto_core.interfaces import AgentCommand, PlacedAgent
from pto_transport_zmq.launchers import AgentProcess

_STEP_S = 0.05


@dataclass(frozen=True)
class Listening:
    """An agent that listens, the id of its node, and the address of the node."""

    agent: PlacedAgent
    node: str
    host: str


class AgentActor:
    """Owns the process of one agent.

    The agent ends with the process of the actor, because its standard input ends. Ray ends that
    process with the node, with the program that made the actor, and when the actor is killed.
    """

    def __init__(self, agent: AgentCommand) -> None:
        self._node = ray.get_runtime_context().get_node_id()
        self._host = ray.util.get_node_ip_address()
        host = f"[{self._host}]" if ":" in self._host else self._host
        # Without the current folder on the path, as with the command `pto`.
        python = (sys.executable, "-P", "-m", "pto_core.cli")
        command = (*python, *agent.arguments(f"tcp://{host}:0"))
        self._process = AgentProcess(command, self._host)

    def listening(self) -> Listening | None:
        """Wait until the agent listens; return None if it has ended before."""
        while self._process.exit_reason() is None:
            if self._process.agent is not None:
                return Listening(self._process.agent, self._node, self._host)
            time.sleep(_STEP_S)
        return None

    def end_reason(self) -> str:
        """Wait until the agent has ended, and return the reason."""
        while True:
            reason = self._process.exit_reason()
            if reason is not None:
                return reason
            time.sleep(_STEP_S)
