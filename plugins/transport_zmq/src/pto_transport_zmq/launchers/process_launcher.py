"""The base of launchers whose agents are processes of this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pto_core.interfaces import Pending, PlacedAgent
from pto_transport_zmq.launchers.agent_process import AgentProcess

_STEP_S = 0.01


class ProcessLauncher:
    """All methods of a launcher but ``place``, which calls :meth:`start` for each agent.

    The placements are the :class:`AgentProcess` objects.
    """

    def __init__(self) -> None:
        self._placed: list[AgentProcess] = []
        self._ending: list[AgentProcess] = []

    @property
    def placed(self) -> Sequence[AgentProcess]:
        """The agents that were started and not released."""
        return tuple(self._placed)

    def start(self, command: Sequence[str], name: str, host: str | None = None) -> AgentProcess:
        """Start an agent; the arguments are those of :class:`AgentProcess`."""
        self._forget_ended()
        process = AgentProcess(command, name, host)
        self._placed.append(process)
        return process

    def address(self, placement: AgentProcess) -> PlacedAgent | Pending:
        """Return the address and key of an agent, or that it has not printed them yet."""
        self._forget_ended()
        waiting = f"the agent {placement} has not printed its address yet"
        return placement.agent or Pending(waiting)

    def lost(self, placement: AgentProcess) -> str | None:
        """Return why the process of an agent has exited; None while it runs."""
        self._forget_ended()
        return placement.exit_reason()

    def release(self, placement: AgentProcess) -> None:
        """Begin to end an agent. A later call, or :meth:`close`, kills it if it does not end."""
        if placement in self._placed:
            placement.end()
            self._placed.remove(placement)
            self._ending.append(placement)
        self._forget_ended()

    def close(self) -> None:
        """End all agents, and wait until their processes have exited."""
        for placement in self.placed:
            self.release(placement)
        while self._ending:
            time.sleep(_STEP_S)
            self._forget_ended()

    def _forget_ended(self) -> None:
        self._ending = [one for one in self._ending if not one.is_over()]
