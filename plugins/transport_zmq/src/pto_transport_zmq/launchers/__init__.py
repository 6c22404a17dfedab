"""The launchers of this package, and a base for launchers whose agents are processes."""

from pto_transport_zmq.launchers.agent_process import AgentProcess
from pto_transport_zmq.launchers.process_launcher import ProcessLauncher

__all__ = ["AgentProcess", "ProcessLauncher"]
