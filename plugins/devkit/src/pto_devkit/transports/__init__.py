"""The contract of transports: the checks, and the links by which they call a transport."""

from pto_devkit.transports.link import Capacity, ChildFace, Link, ParentFace, TransportSubject

__all__ = ["Capacity", "ChildFace", "Link", "ParentFace", "TransportSubject"]
