"""The launcher ``template``: starts agents on this machine, each as a process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pto_core.interfaces import API_VERSION, AgentCommand, Health
from pto_transport_zmq.launchers import AgentProcess, ProcessLauncher


class OpenLauncher(ProcessLauncher):
    """Starts agents; the base class has the methods address, lost, release and close."""

    def __init__(self, agent: AgentCommand) -> None:
        super().__init__()
        # Port 0 is any free port; the agent prints the port that it uses.
        arguments = agent.arguments("tcp://127.0.0.1:0")
        self.command = (sys.executable, "-P", "-m", "pto_core.cli", *arguments)
        self.started = 0

    def place(self, count: int, resources: Mapping[str, float]) -> Sequence[AgentProcess]:
        """Start agents; a launcher that can reserve resources reserves them for each agent."""
        return [self.place_one() for _ in range(count)]

    def place_one(self) -> AgentProcess:
        """Start an agent; its name appears in messages."""
        self.started += 1
        return self.start(self.command, f"template {self.started}")


class TemplateLauncher:
    """The plugin, which opens a launcher for each program."""

    name = "template"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return whether the plugin works on this machine."""
        return Health(ok=True)

    def open(self, agent: AgentCommand, config: Mapping[str, Any]) -> OpenLauncher:
        """Return a launcher that starts agents with ``agent``."""
        return OpenLauncher(agent)


plugin = TemplateLauncher()
