"""The proof that a blocked submit can never succeed."""

from __future__ import annotations

from dataclasses import dataclass

from pto_core.errors import DeadlockError

SLAB_BYTES = 1024
"""The sizes and the addresses of heap rings, and of the slabs in them, are multiples of this."""


@dataclass(frozen=True, slots=True)
class Deadlock:
    """The submitter waits for free space in a heap ring, and no running task can free space."""

    ring: int
    requested: int
    held: int
    """The total size of the slabs in use."""
    size: int
    oldest_task: int
    """The task whose slab must be freed next."""
    open_scope: int
    """The depth of the open scope that keeps this task alive, or NONE."""

    @property
    def needed(self) -> int:
        """The ring needs at least this size, and more if space at its end stays unused."""
        return max(self.held + self.requested, self.size + SLAB_BYTES)

    def error(self) -> DeadlockError:
        """Return the error that the blocked submit raises."""
        return DeadlockError(
            f"a submit needs {self.requested} bytes of heap ring {self.ring}, where "
            f"{self.held} of {self.size} bytes are held and nothing that runs can free them: "
            f"task {self.oldest_task} is kept by the open scope of depth {self.open_scope}. "
            f"Set heap_ring_size to at least {self.needed}, or end the scope earlier.",
            resource="heap ring",
            ring=self.ring,
            needed=self.needed,
            current=self.size,
            settings={"heap_ring_size": self.needed},
        )
