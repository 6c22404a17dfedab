"""Find the links of a transport by its name."""

from __future__ import annotations

from pto_core.errors import UsageError
from pto_core.plugins import load_remote_transport
from pto_transport_zmq.link.interface import Links


def load_links(transport: str) -> Links:
    """Return the links of a transport; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`, and UsageError for a transport without links.
    """
    links = getattr(load_remote_transport(transport), "links", None)
    if not isinstance(links, Links):
        raise UsageError(
            f"remote_transport is {transport!r}, which has no links; agents and keys need a "
            "transport that has, such as 'zmq'",
            name="remote_transport",
            value=transport,
        )
    return links
