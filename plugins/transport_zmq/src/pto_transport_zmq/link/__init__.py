"""Connect hosts by ZeroMQ, with CURVE keys and encryption."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import zmq

from pto_core.interfaces import Health
from pto_transport_zmq.link import keys
from pto_transport_zmq.link.ends import LinkEnd, ZmqLink, ZmqListener, wait
from pto_transport_zmq.link.interface import (
    KeyPair,
    LinkLimits,
    Ready,
    require_loopback,
    split_address,
)

__all__ = ["ZmqLinks"]


class ZmqLinks:
    """The link ``zmq``: a ROUTER socket listens, and DEALER sockets connect to it."""

    name = "zmq"
    capabilities = frozenset({"encrypted", "peer_keys"})

    def health(self) -> Health:
        """Return a healthy state if the installed libzmq has CURVE."""
        if zmq.has("curve"):
            return Health(ok=True)
        return Health(
            ok=False,
            reason=f"libzmq {zmq.zmq_version()} was built without CURVE",
            fix="install a wheel of pyzmq 27.3 or newer, which has it",
        )

    def key_pair(self) -> KeyPair:
        """Return a new pair of CURVE keys. Each key is a text of 40 characters (Z85)."""
        return keys.key_pair()

    def listen(
        self,
        address: str,
        credentials: KeyPair | None = None,
        allowed: Collection[str] = (),
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - the default is immutable
        insecure: bool = False,
    ) -> ZmqListener:
        """Bind a ROUTER socket; see :class:`~.interface.Links`."""
        split_address(address)
        if credentials is None and not insecure:
            require_loopback(address)
        keys.check_listener(credentials, allowed)
        return ZmqListener(address, credentials, allowed, limits)

    def dial(
        self,
        address: str,
        credentials: KeyPair | None = None,
        server_key: str | None = None,
        *,
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - the default is immutable
        insecure: bool = False,
    ) -> ZmqLink:
        """Connect a DEALER socket; see :class:`~.interface.Links`."""
        split_address(address)
        if credentials is None and server_key is None and not insecure:
            require_loopback(address)
        keys.check_link(credentials, server_key)
        return ZmqLink(address, credentials, server_key, limits)

    def wait(
        self,
        ends: Sequence[LinkEnd],
        timeout_s: float | None = None,
        descriptors: Collection[int] = (),
    ) -> Ready:
        """Wait for input on ends and descriptors; see :class:`~.interface.Links`."""
        return wait(ends, timeout_s, descriptors)
