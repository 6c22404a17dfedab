"""The contract of transports: links that drive them, and one module of checks for each concern."""

from pto_core.testing.transports.link import ChildFace, Link, ParentFace, Capacity
from pto_core.testing.transports.subject import TransportSubject

__all__ = ["ChildFace", "Link", "ParentFace", "Capacity", "TransportSubject"]
