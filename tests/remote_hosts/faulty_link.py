"""A link that is zmq with faults. PTO_TEST_FAULTS: the arguments of ``Faults`` as JSON."""

from __future__ import annotations

import json
import os

from link_contract.faults import Faults, FaultyLinks

from pto_transport_zmq.link.loading import load_links

NAME = "faulty"
MODULE = """
from faulty_link import FaultyZmq
from pto_transport_zmq import LinkTransport

plugin = LinkTransport(FaultyZmq())
"""
VARIABLE = "PTO_TEST_FAULTS"


class FaultyZmq(FaultyLinks):
    """The links of zmq, with a name of its own."""

    def __init__(self) -> None:
        super().__init__(load_links("zmq"), Faults(**json.loads(os.environ.get(VARIABLE, "{}"))))
        self.name = NAME
