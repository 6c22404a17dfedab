"""The engine of Workers, in C++: it handles the same events as the reference engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from pto_core import _worker
from pto_core.errors import UsageError
from pto_core.interfaces import Policy
from pto_core.worker.deadlock import Deadlock
from pto_core.worker.placement import least_loaded
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    NONE,
    Allocate,
    Blocked,
    Configuration,
    Delay,
    DropRegions,
    EndChild,
    EnginePolicy,
    Event,
    Instruction,
    Requirement,
    RestoreRegions,
    Result,
    Resume,
    RunFinished,
    SaveRegions,
    Send,
    Snapshot,
    SpaceFreed,
    Submit,
    Submitted,
    TaskFinished,
    Tensor,
)
from pto_devkit.engine.reference.submission import check_submit_sizes

_Tuple = tuple[int, ...]
_Box = tuple[int, int, _Tuple, _Tuple, _Tuple]


class NativeEngine:
    """The engine in C++; see :class:`pto_devkit.engine.Engine`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        policy: Policy | EnginePolicy = least_loaded,
    ) -> None:
        self._core = _worker.EngineCore(
            [(child.kind, child.window) for child in configuration.children],
            [(ring.address, ring.size) for ring in configuration.rings],
            configuration.repeats_lost,
            None if policy is least_loaded else policy,
        )

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; see the interface."""
        match event:
            case Submit():
                return self._submit(event)
            case Allocate(nbytes, run):
                return self._allocate(nbytes, run)
            case _:
                return [self._instruction(each) for each in self._tell(event)]

    def is_quiescent(self) -> bool:
        """Return whether no frame is in flight and no task is ready."""
        return self._core.is_quiescent()

    def deadlock(self, run: int = 0) -> Deadlock | None:
        """Return the proof that the blocked submit can never succeed; see the interface."""
        proof = self._core.deadlock(run)
        return None if proof is None else Deadlock(*proof)

    def snapshot(self) -> Snapshot:
        """Return the observable state."""
        return self._core.snapshot()

    def validate(self) -> None:
        """Raise :class:`InternalError` if an invariant does not hold; for tests."""
        self._core.validate()

    def _submit(self, event: Submit) -> list[Instruction]:
        members = [[_tensor(tensor) for tensor in member.tensors] for member in event.members]
        known = None if event.known is None else (event.known.producers, event.known.owners)
        try:
            submitted, addresses, answer = self._core.submit(
                event.kind,
                members,
                event.pins,
                event.is_hint,
                event.retries,
                event.timeout_ms,
                known,
                event.after,
                event.run,
            )
        except TypeError:
            # A number does not fit the native type, so it is invalid. This check raises the
            # UsageError.
            check_submit_sizes(event)
            raise
        allocated = tuple(
            address
            for member, given in zip(event.members, addresses, strict=True)
            for tensor, address in zip(member.tensors, given, strict=True)
            if tensor.tag is Tag.OUTPUT and tensor.address == 0
        )
        return self._with_result(submitted, allocated, answer)

    def _allocate(self, nbytes: int, run: int) -> list[Instruction]:
        if nbytes < 0:
            raise UsageError(f"{nbytes} bytes cannot be allocated", name="nbytes")
        submitted, address, answer = self._core.allocate(nbytes, run)
        return self._with_result(submitted, (address,), answer)

    def _with_result(
        self, submitted: _Tuple, allocated: tuple[int, ...], answer: Sequence[_Tuple]
    ) -> list[Instruction]:
        task, *numbers = submitted
        if task == NONE:
            return [Blocked(*numbers)]
        return [Submitted(task, allocated), *(self._instruction(each) for each in answer)]

    def _tell(self, event: Event) -> Sequence[_Tuple]:
        """Call the method of the core that has the name and the fields of the event."""
        if isinstance(event, Delay | Resume):
            return self._core.delay(event.task, isinstance(event, Delay))
        values = {member.name: getattr(event, member.name) for member in fields(event)}
        if "count" in values:
            values["count"] = max(values["count"], 0)
        if "started" in values:
            values["started"] %= 2**64
        method = getattr(self._core, re.sub(r"\B(?=[A-Z])", "_", type(event).__name__).lower())
        answer: Sequence[_Tuple] = method(*values.values())
        return answer

    def _instruction(self, each: _Tuple) -> Instruction:
        what, task, member, child, count, required, required_count, result, cause, root, ring = each
        match what:  # in the order of the enum Instruction::What in engine/interface.hpp
            case 0:
                requirement = None if required == NONE else Requirement(required, required_count)
                return Send(child, count, task, member, requirement)
            case 1:
                return SaveRegions(task)
            case 2:
                return RestoreRegions(task)
            case 3:
                return DropRegions(task)
            case 4:
                return TaskFinished(task, Result(result), cause, root)
            case 5:
                return SpaceFreed(ring)
            case 6:
                return EndChild(child, cause)
            case _:
                run = cause  # both are in one field
                failed, poisoned = self._core.failures(run), self._core.poisonings(run)
                return RunFinished(task, tuple(failed), tuple(poisoned), run)


def _tensor(tensor: Tensor) -> tuple[int, int, int, _Box | None, int]:
    box = tensor.box
    plain = None if box is None else (box.base, box.element_bytes, box.raw, box.low, box.extent)
    return tensor.address, tensor.nbytes, tensor.tag, plain, tensor.child
