"""A link that is zmq with faults. PTO_TEST_FAULTS: the arguments of ``Faults`` as JSON."""

from __future__ import annotations

import json
import os

from pto_core.plugins import load_link
from pto_devkit.links.faults import Faults, FaultyLinks

NAME = "faulty"
MODULE = "from faulty_link import FaultyZmq\n\nplugin = FaultyZmq()\n"
VARIABLE = "PTO_TEST_FAULTS"


class FaultyZmq(FaultyLinks):
    """A plugin around the link zmq, with a name of its own."""

    def __init__(self) -> None:
        super().__init__(load_link("zmq"), Faults(**json.loads(os.environ.get(VARIABLE, "{}"))))
        self.name = NAME
