"""A second transport, in plain Python: what `pto new plugin transport packets` writes."""

from __future__ import annotations

from pathlib import Path

from pto_devkit.new import plugin_source

NAME = "packets"


def source() -> str:
    """Return the code of the transport."""
    return plugin_source("transport", NAME)


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
