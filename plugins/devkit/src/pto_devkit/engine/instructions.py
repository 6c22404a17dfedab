"""The instructions that an engine returns: the result of an event, and actions for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from pto_core.hierarchy.handles import Result as Result
from pto_devkit.engine.events import NONE


@dataclass(frozen=True, slots=True)
class Submitted:
    """The submit succeeded: the number of the task, and the addresses of its allocated outputs."""

    task: int
    addresses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The submit had no effect, because ring ``ring`` has no free space for ``requested`` bytes."""

    ring: int
    requested: int
    used: int
    size: int


@dataclass(frozen=True, slots=True)
class Requirement:
    """The frame must wait until ``child`` has completed ``count`` frames; the last must succeed."""

    child: int
    count: int


@dataclass(frozen=True, slots=True)
class Send:
    """Put a frame into the queue of the child, as the child's frame number ``count``."""

    child: int
    count: int
    task: int
    member: int
    requirement: Requirement | None = None


@dataclass(frozen=True, slots=True)
class SaveRegions:
    """Save a copy of the task's INOUT regions before the task is sent, because it has retries."""

    task: int


@dataclass(frozen=True, slots=True)
class RestoreRegions:
    """Restore the saved copy of the task's regions before the task is sent again."""

    task: int


@dataclass(frozen=True, slots=True)
class DropRegions:
    """Discard the saved copy of the task's regions."""

    task: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """The task has ended. ``root``: the failed task that poisoned it; NONE in a cancelled run."""

    task: int
    result: Result
    cause: int = NONE
    root: int = NONE


@dataclass(frozen=True, slots=True)
class SpaceFreed:
    """Slabs of this heap ring were freed, so a blocked submit may now succeed."""

    ring: int


@dataclass(frozen=True, slots=True)
class EndChild:
    """Kill the child, because a task exceeded its time limit; then report the child's loss."""

    child: int
    cause: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Every task of the run has ended, and every slot is free.

    ``failed``: pairs of a task and its cause; the first failure comes first. ``poisoned``: pairs of
    a task and its root.
    """

    tasks: int
    failed: tuple[tuple[int, int], ...] = ()
    poisoned: tuple[tuple[int, int], ...] = ()


Instruction = (
    Submitted
    | Blocked
    | Send
    | SaveRegions
    | RestoreRegions
    | DropRegions
    | TaskFinished
    | SpaceFreed
    | EndChild
    | RunFinished
)
