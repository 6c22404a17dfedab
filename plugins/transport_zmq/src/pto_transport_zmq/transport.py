"""The plugin: a transport whose messages travel over links.

Another fabric needs links of its own, and an entry point in the group ``pto.transports`` that names
``LinkTransport(FabricLinks())``; see :class:`pto_transport_zmq.link.interface.Links`. Agents,
sessions, keys and memory are those of this package.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from pto_core.interfaces import API_VERSION, Health
from pto_transport_zmq.link import ZmqLinks
from pto_transport_zmq.link.interface import Links
from pto_transport_zmq.remote import REASON_BYTES, TABLE_BYTES

if TYPE_CHECKING:
    from pto_core.worker import remote_transport
    from pto_core.worker.children import NestedWorker
    from pto_transport_zmq.remote.remote_child import RelayedChild


class LinkTransport:
    """The transport with the name and the capabilities of its links."""

    api_version = API_VERSION
    reason_bytes = REASON_BYTES
    digest_bytes = TABLE_BYTES

    def __init__(self, links: Links) -> None:
        self.name = links.name
        self.capabilities = links.capabilities
        self.links = links

    def health(self) -> Health:
        """Return the health of the links."""
        return self.links.health()

    def child(
        self,
        worker: NestedWorker,
        path: str,
        sibling: remote_transport.RemoteChild | None = None,
    ) -> RelayedChild:
        """Return the child at ``path``; ``sibling`` has the launcher that this child uses."""
        from pto_transport_zmq.remote.placements import LauncherClient
        from pto_transport_zmq.remote.remote_child import RelayedChild

        placements = None
        if isinstance(sibling, RelayedChild):
            placements = sibling.placements
        elif worker.settings.host_request is not None:
            placements = LauncherClient(worker.settings)
        return RelayedChild(worker, path, placements)

    def buffers(self) -> ModuleType:
        """Return the module of remote buffers, as the program and its Worker see them."""
        from pto_transport_zmq.remote import worker_buffers

        return worker_buffers


plugin = LinkTransport(ZmqLinks())
