"""The contract of transports: links that drive them, and one module of checks for each concern."""

from pto_core.testing.transports.link import Capacity, ChildFace, Link, ParentFace
from pto_core.testing.transports.subject import TransportSubject

__all__ = ["Capacity", "ChildFace", "Link", "ParentFace", "TransportSubject"]
