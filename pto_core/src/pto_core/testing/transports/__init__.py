"""The contract of transports: links that drive a transport, and modules of checks."""

from pto_core.testing.transports.link import Capacity, ChildFace, Link, ParentFace
from pto_core.testing.transports.subject import TransportSubject

__all__ = ["Capacity", "ChildFace", "Link", "ParentFace", "TransportSubject"]
