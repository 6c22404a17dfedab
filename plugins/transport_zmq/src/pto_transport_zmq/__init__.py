"""The transport to other hosts: agents, sessions and the copies of memory, over ZeroMQ links."""

from pto_transport_zmq.transport import LinkTransport, plugin

__all__ = ["LinkTransport", "plugin"]
