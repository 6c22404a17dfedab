"""A link that is zmq with faults. PTO_TEST_FAULTS: the arguments of ``Faults`` as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pto_core.plugins import load_link
from pto_core.testing.links.faults import Faults, FaultyLinks

NAME = "faulty"
VARIABLE = "PTO_TEST_FAULTS"


class FaultyZmq(FaultyLinks):
    """A plugin around the link zmq, with a name of its own."""

    def __init__(self) -> None:
        super().__init__(load_link("zmq"), Faults(**json.loads(os.environ.get(VARIABLE, "{}"))))
        self.name = NAME


def install(folder: Path) -> None:
    """Write the metadata of a distribution with this link; ``folder`` must be on the path."""
    metadata = folder / "pto_link_faulty-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pto-link-faulty\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(f"[pto.links]\n{NAME} = pto_link_faulty:plugin\n")
    (folder / "pto_link_faulty.py").write_text(
        "from faulty_link import FaultyZmq\n\nplugin = FaultyZmq()\n"
    )
