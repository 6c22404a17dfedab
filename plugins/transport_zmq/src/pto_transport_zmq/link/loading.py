"""Find the links of a transport by its name."""

from __future__ import annotations

from pto_core.errors import UsageError
from pto_core.plugins import load_remote_transport
from pto_transport_zmq.link.interface import Links


def load_links(transport: str) -> Links:
    """Return the links of a transport; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`, and UsageError for a transport without links.
    """
    links: Links | None = getattr(load_remote_transport(transport), "links", None)
    if links is None:
        raise UsageError(
            f"remote_transport is {transport!r}, which has no links, as agents and keys need; "
            "choose a transport with links, such as 'zmq'",
            name="remote_transport",
            value=transport,
        )
    return links
