"""The contract of links, a proxy that breaks connections, and faulty links for other tests."""

from link_contract.faults import Faults, FaultyLinks
from link_contract.proxy import Proxy
from link_contract.subject import LinkSubject, World

__all__ = ["Faults", "FaultyLinks", "LinkSubject", "Proxy", "World"]
