"""What an engine knows from the start."""

from __future__ import annotations

from dataclasses import dataclass

from pto_core.errors import UsageError
from pto_core.hierarchy.engine.events import Kind

RINGS = 4
SLAB_BYTES = 1024
DEFAULT_WINDOW = 64


@dataclass(frozen=True, slots=True)
class ChildConfiguration:
    """A child: what it runs, and how many frames may be in flight to it."""

    kind: Kind
    window: int = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True)
class RingConfiguration:
    """The memory of a heap ring; the engine never touches it. Multiples of ``SLAB_BYTES``."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """Children are known by their place in ``children``; there is a ring for each scope depth.

    ``repeats_lost``: what was sent to a child that is lost runs again where that is safe:
    always if it had not been started, else if it has retries left. Without, it fails.
    """

    children: tuple[ChildConfiguration, ...]
    rings: tuple[RingConfiguration, ...]
    repeats_lost: bool = False

    def __post_init__(self) -> None:
        if len(self.rings) != RINGS:
            raise UsageError(f"{len(self.rings)} heap rings given; give {RINGS}", name="rings")
        for ring in self.rings:
            if ring.size < SLAB_BYTES or ring.size % SLAB_BYTES or ring.address % SLAB_BYTES:
                raise UsageError(
                    f"a heap ring of {ring.size} bytes at {ring.address:#x}; heap_ring_size is a "
                    f"multiple of {SLAB_BYTES}, at least {SLAB_BYTES}",
                    name="heap_ring_size",
                    value=ring.size,
                )
        for child in self.children:
            if child.window < 1:
                raise UsageError(f"a window of {child.window} frames; give at least 1")
