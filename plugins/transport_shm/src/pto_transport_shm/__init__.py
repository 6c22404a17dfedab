"""Connect a Worker to children on the same machine, through mailboxes in shared memory."""

from pto_transport_shm.mailbox import SharedMemoryTransport, plugin

__all__ = ["SharedMemoryTransport", "plugin"]
