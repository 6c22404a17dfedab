"""The launchers of this package, and a base for launchers whose agents are processes."""

from pto_transport_zmq.launchers.agent_process import AgentProcess, ProcessLauncher

__all__ = ["AgentProcess", "ProcessLauncher"]
