"""The identity of each side of a session, exchanged in HELLO and WELCOME.

Two sides work together only if their identities match. Each mismatch is named, with both values.
"""

from __future__ import annotations

import re
import resource
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.lease import LONGEST_NS, SHORTEST_NS
from pto_transport_zmq.remote.wire import VERSION, Part

_GREETING = struct.Struct("<IxxBxQ32s")
GREETING_BYTES: Final = _GREETING.size
_LITTLE, _BIG = 1, 2
_BYTE_ORDERS: Final = {_LITTLE: "little", _BIG: "big"}
_CORE_VERSION = re.compile(r"[0-9A-Za-z.+_!-]{1,32}")
_LARGEST_PAGE: Final = 1 << 30


class Side(Enum):
    """The sides of a session."""

    RELAY = "the parent's host"
    GATEWAY = "the remote host"

    @property
    def peer(self) -> Side:
        """The other side."""
        return Side.GATEWAY if self is Side.RELAY else Side.RELAY


@dataclass(frozen=True)
class Identity:
    """The properties in which both hosts must match."""

    core_version: str
    """The version of ptorun-core."""
    lease_ns: int
    page_bytes: int
    byte_order: str
    """``little`` or ``big``."""

    def __post_init__(self) -> None:
        if not _CORE_VERSION.fullmatch(self.core_version):
            raise UsageError(f"{self.core_version!r} is not a version of at most 32 characters")

    @classmethod
    def of_this_process(cls, core_version: str, lease_ns: int) -> Identity:
        """Return the identity of this process."""
        return cls(
            core_version=core_version,
            lease_ns=lease_ns,
            page_bytes=resource.getpagesize(),
            byte_order=sys.byteorder,
        )

    def pack(self) -> bytes:
        """Return the body of HELLO and WELCOME."""
        return _GREETING.pack(
            self.page_bytes,
            _LITTLE if self.byte_order == "little" else _BIG,
            self.lease_ns,
            self.core_version.encode("ascii"),
        )

    @classmethod
    def unpack(cls, body: Sequence[Part]) -> Identity:
        """Parse the body of HELLO or WELCOME. Raises ``ProtocolError`` if it is invalid."""
        packed = b"".join(body)
        if len(packed) != GREETING_BYTES:
            raise ProtocolError(
                f"a greeting has a body of {len(packed)} bytes; {GREETING_BYTES} are required"
            )
        page_bytes, order, lease_ns, padded = _GREETING.unpack(packed)
        version = padded.rstrip(b"\0").decode("latin-1")
        _require("page size", page_bytes, is_valid=0 < page_bytes <= _LARGEST_PAGE)
        _require("byte order", order, is_valid=order in _BYTE_ORDERS)
        _require("lease", lease_ns, is_valid=SHORTEST_NS <= lease_ns <= LONGEST_NS)
        _require("core version", version, is_valid=bool(_CORE_VERSION.fullmatch(version)))
        return cls(
            core_version=version,
            lease_ns=lease_ns,
            page_bytes=page_bytes,
            byte_order=_BYTE_ORDERS[order],
        )


def check_build(*, parent: str, host: str) -> None:
    """Raise ``UsageError`` unless both hosts have the same build."""
    if parent == host:
        return
    is_same_version = parent.partition("+")[0] == host.partition("+")[0]
    raise UsageError(
        f"the parent's host has ptorun-core {parent}, this host {host}; "
        + (
            "the version is the same, but the code differs: install both from the same commit"
            if is_same_version
            else "install the same version on both"
        ),
        name="core_version",
    )


def mismatches(relay: Identity, gateway: Identity) -> list[str]:
    """Describe each property in which the two sides do not match, with both values."""
    compared = (
        ("core_version", "version of ptorun-core", "Install the same version on both hosts."),
        ("byte_order", "byte order", "Use hosts of the same byte order."),
        ("page_bytes", "page size in bytes", "Use kernels with the same page size."),
        ("lease_ns", "lease in nanoseconds", "Use the same lease on both hosts."),
    )
    return [
        f"{_mismatch(name, getattr(relay, member), getattr(gateway, member))} {advice}"
        for member, name, advice in compared
        if getattr(relay, member) != getattr(gateway, member)
    ]


def other_version(side: Side, peer_version: int) -> str:
    """Return the error text for a peer with another protocol version."""
    pair = (VERSION, peer_version) if side is Side.RELAY else (peer_version, VERSION)
    return (
        _mismatch("protocol version", *pair)
        + " Install the same version of ptorun-core on both hosts."
    )


def other_session(epochs: tuple[int, int] | None) -> str:
    """Return the error text for a HELLO of another session, or of another epoch."""
    if epochs is None:
        return "The session differs: the gateway at this address serves another session."
    return _mismatch("epoch of the session", *epochs) + " Only the newest epoch may connect."


def _mismatch(name: str, relay: object, gateway: object) -> str:
    return f"The {name} differs: {relay} on {Side.RELAY.value}, {gateway} on {Side.GATEWAY.value}."


def _require(name: str, value: object, *, is_valid: bool) -> None:
    if not is_valid:
        raise ProtocolError(f"a greeting has the invalid {name} {value!r}")
