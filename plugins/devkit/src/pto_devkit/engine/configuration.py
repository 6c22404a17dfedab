"""The configuration of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from pto_core.errors import UsageError
from pto_devkit.engine.events import Kind

RINGS = 4
SLAB_BYTES = 1024
DEFAULT_WINDOW = 64


@dataclass(frozen=True, slots=True)
class ChildConfiguration:
    """A child: the kind of tasks that it runs, and the maximum number of its frames in flight."""

    kind: Kind
    window: int = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True)
class RingConfiguration:
    """A heap ring. The engine never accesses its memory. Sizes are multiples of ``SLAB_BYTES``."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """Children are identified by their index in ``children``; scopes of equal depth share a ring.

    ``repeats_lost``: whether tasks of a lost child run again. If it is true, a task that had not
    started runs again, and a task that had started runs again if it has retries left. If it is
    false, all of these tasks fail.
    """

    children: tuple[ChildConfiguration, ...]
    rings: tuple[RingConfiguration, ...]
    repeats_lost: bool = False

    def __post_init__(self) -> None:
        if len(self.rings) != RINGS:
            raise UsageError(f"{len(self.rings)} heap rings given; pass {RINGS}", name="rings")
        for ring in self.rings:
            if ring.size < SLAB_BYTES or ring.size % SLAB_BYTES or ring.address % SLAB_BYTES:
                raise UsageError(
                    f"a heap ring of {ring.size} bytes at {ring.address:#x}; heap_ring_size must "
                    f"be a multiple of {SLAB_BYTES}, at least {SLAB_BYTES}",
                    name="heap_ring_size",
                    value=ring.size,
                )
        for child in self.children:
            if child.window < 1:
                raise UsageError(f"a window of {child.window} frames; pass at least 1")
