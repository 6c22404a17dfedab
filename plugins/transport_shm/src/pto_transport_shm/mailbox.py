"""Define the plugin object. The transport itself is in the native library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pto_core.interfaces import API_VERSION, Health

_PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class SharedMemoryTransport:
    """The transport ``shm``: two rings in memory that parent and child share."""

    name: str = "shm"
    api_version: int = API_VERSION
    capabilities: frozenset[str] = frozenset({"in_order", "same_addresses"})
    frame_limit: int = 1 << 30

    def health(self) -> Health:
        """Report a healthy transport: it needs only its library, which the core checks."""
        return Health(ok=True)

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_transport_entry``."""
        return _PACKAGE / "libpto_transport_shm.so"


plugin = SharedMemoryTransport()
