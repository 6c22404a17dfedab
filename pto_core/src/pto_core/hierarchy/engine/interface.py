"""The engine: events in, instructions out. No clock, no thread, no memory of its own.

A complete driver of one run, with children that answer at once::

    engine = ReferenceEngine(configuration)
    engine.handle(ChildReady(0))
    engine.handle(RunBegin())
    engine.handle(Submit(Kind.SUB))
    engine.handle(RunEnd())
    for instruction in engine.handle(Dispatch()):
        if isinstance(instruction, Send):
            engine.handle(Completion(instruction.child, instruction.count))

One thread at a time calls an engine. Nothing blocks but what the driver makes of ``Blocked``: it
tells what the world has to tell, dispatches, and submits again; when :meth:`Engine.is_quiescent`
then says that nothing can happen any more, :meth:`Engine.deadlock` is the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pto_core.errors import DeadlockError
from pto_core.hierarchy.engine.configuration import SLAB_BYTES
from pto_core.hierarchy.engine.events import Event
from pto_core.hierarchy.engine.instructions import Instruction

Policy = Callable[[Sequence[tuple[int, int]], int], int]
"""Picks a child: given (child, frames in flight) of those that have room, ascending by child, and
the child of the task's last producer or NONE; gives one of those children."""

Snapshot = dict[str, Any]
"""Plain data: dictionaries, lists and numbers."""


def least_loaded(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
    """Pick the child with the fewest frames in flight; among equals ``preferred``, then the first.

    Another :data:`Policy` can be given to an engine in its place.
    """
    return min(candidates, key=lambda pair: (pair[1], pair[0] != preferred, pair[0]))[0]


@dataclass(frozen=True, slots=True)
class Deadlock:
    """The submitter waits for room in a heap ring, and nothing that runs can free any."""

    ring: int
    requested: int
    held: int
    """Bytes of all slabs that are not free."""
    size: int
    oldest_task: int
    """The slab of this task is the next to be freed."""
    open_scope: int
    """The depth of the scope that holds it, or NONE."""

    @property
    def needed(self) -> int:
        """A ring size that is needed at least: slabs also lose what a lap leaves at its end."""
        return max(self.held + self.requested, self.size + SLAB_BYTES)

    def error(self) -> DeadlockError:
        """Give the error that the submitter gets."""
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


class Engine(Protocol):
    """What a driver can rely on, whichever engine it has."""

    def handle(self, event: Event) -> list[Instruction]:
        """Take an event and give its result and what is to be done, in this order.

        Raises :class:`UsageError` when the program broke a rule, :class:`CapacityError` when a
        submit needs more than a whole heap ring, and :class:`ProtocolError` when a child reports
        what cannot be; the engine is then as it was before.
        """

    def is_quiescent(self) -> bool:
        """Say whether nothing is in flight and nothing is ready.

        Then no completion can come, and the next change must be the submitter's.
        """

    def deadlock(self) -> Deadlock | None:
        """Give the proof that the last event, a submit that was blocked, can never succeed.

        None if it may, or if the last event was something else.
        """

    def snapshot(self) -> Snapshot:
        """Give everything that can be observed; equal for two engines that behave the same."""

    def validate(self) -> None:
        """Raise :class:`InternalError` if an invariant does not hold; slow, for tests."""
