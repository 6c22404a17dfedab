"""The interface of the engines that tests drive: the reference engine, and the native one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pto_core.hierarchy.deadlock import Deadlock
from pto_devkit.engine.events import Event
from pto_devkit.engine.instructions import Instruction

Snapshot: TypeAlias = dict[str, Any]
"""A snapshot as plain data: dictionaries, lists and numbers."""


@runtime_checkable
class EnginePolicy(Protocol):
    """A policy as an engine receives it: the Worker adds the facts about candidates and task."""

    def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
        """Return the child for the task with this number."""


class Engine(Protocol):
    """The engine of a Worker's runs: takes events and returns instructions.

    It has no clock, no thread and no I/O. A driver reports everything that happens as events, and
    executes the instructions. A complete driver of one run, with children that answer at
    once::

        engine = ReferenceEngine(configuration)
        engine.handle(ChildReady(0))
        engine.handle(RunBegin())
        engine.handle(Submit(Kind.SUB))
        engine.handle(RunEnd())
        for instruction in engine.handle(Dispatch()):
            if isinstance(instruction, Send):
                engine.handle(Completion(instruction.child, instruction.count))

    Only one thread at a time calls an engine, and no call blocks. If the answer to a submit is
    ``Blocked``, the driver reports other events, dispatches, and submits again. If the submit stays
    blocked while :meth:`is_quiescent` is true, :meth:`deadlock` proves that it can never succeed.
    """

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Handle an event; return its result and the instructions for the driver, in order.

        Raises :class:`~pto_core.errors.UsageError` if the program broke a rule,
        :class:`~pto_core.errors.CapacityError` if a submit needs more bytes than its heap ring has,
        and :class:`~pto_core.errors.ProtocolError` if a child reports something impossible. The
        engine is unchanged after an error.
        """

    def is_quiescent(self) -> bool:
        """Return whether no frame is in flight and no task is ready.

        In this state no completion can arrive, so only the program can cause the next event.
        """

    def deadlock(self) -> Deadlock | None:
        """Return the proof that the last event, a submit that was blocked, can never succeed.

        Returns None if the submit may still succeed, or if the last event was not a blocked submit.
        """

    def snapshot(self) -> Snapshot:
        """Return the observable state."""

    def validate(self) -> None:
        """Raise :class:`~pto_core.errors.InternalError` if an invariant is broken; for tests."""
