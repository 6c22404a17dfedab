"""Install a transport over plain TCP, or another one with a link."""

from __future__ import annotations

from pathlib import Path

NAME = "tcp"
# A message of two parts, each of almost 4 GiB.
GIANT = b"TCPL" + (2).to_bytes(4, "little") + (2**32 - 1).to_bytes(4, "little") * 2


def source() -> str:
    """Return the code of the transport over TCP."""
    return Path(__file__).with_name("tcp_link.py").read_text()


def install(folder: Path, name: str = NAME, module: str | None = None) -> None:
    """Write a module and the metadata of its distribution; ``folder`` must be on the path."""
    (folder / f"pto_link_{name}.py").write_text(source() if module is None else module)
    metadata = folder / f"pto_link_{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: pto-link-{name}\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[pto.transports]\n{name} = pto_link_{name}:plugin\n"
    )
