"""The contract of every link."""

from __future__ import annotations

from link_contract.contract import LinkContract


def giant() -> bytes:
    """Return a valid ZMTP 3 handshake without keys, then a part that declares 2**62 bytes."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY" + b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    return greeting + b"\x04" + bytes([len(ready)]) + ready + b"\x02" + (1 << 62).to_bytes(8, "big")


class TestZmq(LinkContract):
    link = "zmq"
    giant = giant()
