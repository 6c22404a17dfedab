"""A run on an engine, driven event by event; the invariants are checked after each event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pto_devkit.abi import Tag
from pto_devkit.engine import (
    ChildConfiguration,
    Configuration,
    Engine,
    NativeEngine,
    ReferenceEngine,
    RingConfiguration,
)
from pto_devkit.engine.interface import (
    Allocate,
    ChildReady,
    Completion,
    Dispatch,
    Event,
    Hazards,
    Instruction,
    Kind,
    Member,
    Outcome,
    RunBegin,
    Send,
    Submit,
    Submitted,
    Tensor,
)

HEAP = 1 << 40
APART = 1 << 30
SUB = Kind.SUB
FAILED, SKIPPED, SUCCEEDED = Outcome.FAILED, Outcome.SKIPPED, Outcome.SUCCEEDED


def reads(address: int, nbytes: int = 64) -> Tensor:
    return Tensor(address, nbytes, Tag.INPUT)


def writes(address: int = 0, nbytes: int = 64) -> Tensor:
    return Tensor(address, nbytes, Tag.OUTPUT)


def updates(address: int, nbytes: int = 64) -> Tensor:
    return Tensor(address, nbytes, Tag.INOUT)


def overwrites(address: int, nbytes: int = 64) -> Tensor:
    return Tensor(address, nbytes, Tag.OUTPUT_EXISTING)


def ignores(address: int, nbytes: int = 64) -> Tensor:
    return Tensor(address, nbytes, Tag.NO_DEP)


def rig_configuration(
    kinds: Iterable[Kind], window: int = 64, ring_size: int = 1 << 20, repeats_lost: bool = False
) -> Configuration:
    """Return a configuration with children of these kinds, and with heap rings far apart."""
    return Configuration(
        tuple(ChildConfiguration(kind, window) for kind in kinds),
        tuple(RingConfiguration(HEAP + APART * ring, ring_size) for ring in range(4)),
        repeats_lost,
    )


class Rig:
    """An engine in a run, with all its children ready."""

    engine_type: type[ReferenceEngine | NativeEngine] = ReferenceEngine

    def __init__(
        self,
        children: int = 2,
        *,
        hazards: Hazards = Hazards.RAW,
        window: int = 64,
        ring_size: int = 1 << 20,
        repeats_lost: bool = False,
        kinds: tuple[Kind, ...] = (),
        **options: Any,
    ) -> None:
        kinds = kinds or (SUB,) * children
        self.engine: Engine = self.engine_type(
            rig_configuration(kinds, window, ring_size, repeats_lost), **options
        )
        for child in range(len(kinds)):
            self.handle(ChildReady(child))
        self.handle(RunBegin(hazards))

    def handle(self, event: Event) -> list[Instruction]:
        answer = self.engine.handle(event)
        self.engine.validate()
        return answer

    def submit(self, *tensors: Tensor, **options: Any) -> int:
        return self.submitted(*tensors, **options).task

    def submitted(self, *tensors: Tensor, kind: Kind = SUB, **options: Any) -> Submitted:
        options.setdefault("members", (Member(tensors),))
        answer = self.handle(Submit(kind, **options))[0]
        assert isinstance(answer, Submitted), answer
        return answer

    def alloc(self, nbytes: int) -> tuple[int, int]:
        """Allocate a buffer; return its task and its address."""
        answer = self.handle(Allocate(nbytes))[0]
        assert isinstance(answer, Submitted), answer
        return answer.task, answer.addresses[0]

    def dispatch(self) -> list[Send]:
        return [each for each in self.handle(Dispatch()) if isinstance(each, Send)]

    def complete(
        self, child: int, count: int, outcome: Outcome = SUCCEEDED, cause: int = -1
    ) -> list[Instruction]:
        return self.handle(Completion(child, count, outcome, cause))

    def task(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.engine.snapshot()["tasks"][number]
        return found

    def state(self, number: int) -> str:
        return str(self.engine.snapshot()["tasks"].get(number, {"state": "gone"})["state"])

    def waits_for(self, number: int) -> list[int]:
        return list(self.task(number)["unfinished"])
