"""A second transport, in plain Python: the example of the interface's docstring, installed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from pto_core.interfaces import transport

NAME = "packets"


def source() -> str:
    """Return the code of the docstring's example."""
    example = re.search(r"::\n\n((?: {4}.*\n|\n)+)with", transport.__doc__ or "")
    assert example is not None
    return textwrap.dedent(example[1])


def install(folder: Path) -> None:
    """Write the module and the metadata of its distribution; ``folder`` must be on the path."""
    (folder / "pto_transport_packets.py").write_text(source())
    metadata = folder / "pto_transport_packets-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pto-transport-packets\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[pto.transports]\n{NAME} = pto_transport_packets:plugin\n"
    )
