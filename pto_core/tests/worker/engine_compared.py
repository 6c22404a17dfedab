"""Two engines that receive the same events must return the same answers and snapshots."""

from __future__ import annotations

from typing import Any

from pto_core.errors import PtoError
from pto_devkit.engine import Configuration, Deadlock, NativeEngine, ReferenceEngine, Snapshot
from pto_devkit.engine.interface import Dispatch, Event, Instruction


class Difference(AssertionError):
    """The native engine differs from the reference engine."""


class ComparedEngine:
    """A reference engine, and a native engine that is compared with it after each event."""

    def __init__(self, configuration: Configuration, **of_reference: Any) -> None:
        policy = {"policy": of_reference["policy"]} if "policy" in of_reference else {}
        self.reference = ReferenceEngine(configuration, **of_reference)
        self.native = NativeEngine(configuration, **policy)
        self.events = 0
        """The events so far, without dispatches that sent nothing."""

    def handle(self, event: Event) -> list[Instruction]:
        """Pass the event to both engines; return the answer or raise the error of the reference."""
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
            raise Difference(f"after {event} only one engine is quiescent")
        for run in range(len(expected["runs"])):
            if self.native.deadlock(run) != self.reference.deadlock(run):
                raise Difference(f"after {event} only one engine has a deadlock of run {run}")

    def is_quiescent(self) -> bool:
        """Return whether nothing is in flight and nothing is ready."""
        return self.reference.is_quiescent()

    def deadlock(self, run: int = 0) -> Deadlock | None:
        """Return the proof of a deadlock, which is the same in both engines."""
        return self.reference.deadlock(run)

    def snapshot(self) -> Snapshot:
        """Return the observable state."""
        return self.reference.snapshot()

    def validate(self) -> None:
        """Check the invariants of both engines."""
        self.reference.validate()
        self.native.validate()


def _answer(
    engine: ReferenceEngine | NativeEngine, event: Event
) -> tuple[list[Instruction] | None, PtoError | None]:
    try:
        return list(engine.handle(event)), None
    except PtoError as error:
        return None, error
