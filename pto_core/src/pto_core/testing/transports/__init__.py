"""What every transport holds: links to drive it by, and the checks, a module for each concern."""

from pto_core.testing.transports.link import ChildFace, Link, ParentFace, Room
from pto_core.testing.transports.subject import TransportSubject

__all__ = ["ChildFace", "Link", "ParentFace", "Room", "TransportSubject"]
