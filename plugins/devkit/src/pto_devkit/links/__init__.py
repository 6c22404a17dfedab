"""The contract of links, a proxy that breaks connections, and faulty links for other tests."""

from pto_devkit.links.faults import Faults, FaultyLinks
from pto_devkit.links.proxy import Proxy
from pto_devkit.links.subject import LinkSubject, World

__all__ = ["Faults", "FaultyLinks", "LinkSubject", "Proxy", "World"]
