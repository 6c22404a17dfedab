"""The launchers of this package, and a base for launchers whose agents are processes."""

from pto_core.launchers.agent_process import AgentProcess
from pto_core.launchers.process_launcher import ProcessLauncher

__all__ = ["AgentProcess", "ProcessLauncher"]
