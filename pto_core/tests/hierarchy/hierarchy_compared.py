"""Two engines that get the same events must return the same answers and snapshots."""

from __future__ import annotations

from typing import Any

from pto_core.errors import PtoError
from pto_core.hierarchy.engine import Configuration, Deadlock, NativeEngine, ReferenceEngine
from pto_core.hierarchy.engine.events import Dispatch, Event
from pto_core.hierarchy.engine.instructions import Instruction
from pto_core.interfaces.scheduler import Snapshot


class Difference(AssertionError):
    """The native engine does not do what the reference engine does."""


class ComparedEngine:
    """A reference engine, and a native one that is held to it event by event."""

    def __init__(self, configuration: Configuration, **of_native: Any) -> None:
        policy = {"policy": of_native["policy"]} if "policy" in of_native else {}
        self.reference = ReferenceEngine(configuration, **policy)
        self.native = NativeEngine(configuration, **of_native)
        self.events = 0
        """Told so far, without dispatches that sent nothing."""

    def handle(self, event: Event) -> list[Instruction]:
        """Tell both; gives the answer, or raises what the reference raised."""
        expected, refused = _answer(self.reference, event)
        found, error = _answer(self.native, event)
        if (found, type(error), str(error)) != (expected, type(refused), str(refused)):
            raise Difference(f"{event}:\n  {found} {error!r}\nis not\n  {expected} {refused!r}")
        self._compare_looks(event)
        self.events += expected != [] or not isinstance(event, Dispatch)
        if refused is not None:
            raise refused
        return expected

    def _compare_looks(self, event: Event) -> None:
        found, expected = self.native.snapshot(), self.reference.snapshot()
        if found != expected:
            parts = [part for part in expected if found.get(part) != expected[part]]
            shown = "\n".join(f"{part}: {found.get(part)}\n  {expected[part]}" for part in parts)
            raise Difference(f"after {event} these differ:\n{shown}")
        if self.native.is_quiescent() != self.reference.is_quiescent():
            raise Difference(f"after {event} only one is quiescent")
        if self.native.deadlock() != self.reference.deadlock():
            raise Difference(f"after {event} only one is in a deadlock")

    def is_quiescent(self) -> bool:
        """Say whether nothing is in flight and nothing is ready."""
        return self.reference.is_quiescent()

    def deadlock(self) -> Deadlock | None:
        """Give the proof of both."""
        return self.reference.deadlock()

    def snapshot(self) -> Snapshot:
        """Give everything that can be observed."""
        return self.reference.snapshot()

    def validate(self) -> None:
        """Look at the invariants of both."""
        self.reference.validate()
        self.native.validate()


def _answer(
    engine: ReferenceEngine | NativeEngine, event: Event
) -> tuple[list[Instruction] | None, PtoError | None]:
    try:
        return list(engine.handle(event)), None
    except PtoError as error:
        return None, error
