"""Children on the same machine: a mailbox in shared memory for each."""

from pto_transport_shm.mailbox import SharedMemoryTransport, plugin

__all__ = ["SharedMemoryTransport", "plugin"]
