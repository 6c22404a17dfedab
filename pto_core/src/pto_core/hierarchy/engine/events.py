"""What an engine is told.

Every field is a number or a tuple of numbers, so that a native engine takes the same events as
plain structures. What a task runs, with which scalars and configuration, and from which line, stays
with the driver; so do texts and exceptions, to which it gives numbers (``cause``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NONE = -1
"""No task, no child, no cause: those that exist count from 0."""
CHILD_MEMORY_END = 1 << 48
"""Addresses of the memory of a child are below this."""


class Kind(IntEnum):
    """Which children can run a task."""

    NEXT_LEVEL = 0
    SUB = 1


class Tag(IntEnum):
    """What a task does with a tensor; consumed at submit, never carried on."""

    INPUT = 0
    OUTPUT = 1
    INOUT = 2
    OUTPUT_EXISTING = 3
    NO_DEP = 4


class Hazards(IntEnum):
    """RAW: tasks wait for the writers of what they read. FULL: writers wait for everyone before."""

    RAW = 0
    FULL = 1


class Outcome(IntEnum):
    """How a frame ended. SKIPPED: its requirement had failed, so it was not started."""

    SUCCEEDED = 0
    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Box:
    """What a view takes of each dimension of its buffer, the fastest dimension first.

    ``base`` is the first byte of the buffer; ``low[d] + extent[d] <= raw[d]`` in elements.
    """

    base: int
    element_bytes: int
    raw: tuple[int, ...]
    low: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: a range of bytes, or a box where it is not contiguous.

    ``address`` is its first byte. ``nbytes`` 0 is a key: it orders tasks by address and covers
    nothing. OUTPUT with address 0 is allocated from the heap ring of the scope. ``child``: whose
    memory it is; NONE is that of the host. Two children may have memory at the same address; a
    tensor overlaps only tensors of the same memory.
    """

    address: int
    nbytes: int
    tag: Tag
    box: Box | None = None
    child: int = NONE


@dataclass(frozen=True, slots=True)
class Member:
    """The arguments of one of the N executions of a task; a task that is no group has one."""

    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What a capture of the same submits found, by how many tasks before this one they were."""

    producers: tuple[tuple[int, int], ...] = ()
    """Whom the task waits for, and why: the bits of an edge of the reference engine."""
    owners: tuple[int, ...] = ()
    """Whose buffers it names."""


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A run begins, with the outermost scope open."""

    hazards: Hazards = Hazards.RAW


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Nothing more is submitted: the outermost scope ends. The run finishes with its last task."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A task. Answered by ``Submitted`` or ``Blocked``.

    ``pins``: none, or one child for each member; distinct in a group. ``is_hint``: they are wishes.
    ``retries``: how often it may run again after a failure or the loss of its child; more than 0
    declares it safe to repeat. ``timeout_ms`` 0 is none; the driver keeps time. ``after``: earlier
    tasks of the run that it also waits for, and whose failure poisons it. ``known``: of a
    replay, whose tensors are neither looked up nor remembered; those that are not allocated and,
    where there are retries, not INOUT may be left out then.
    """

    kind: Kind
    members: tuple[Member, ...] = (Member(),)
    pins: tuple[int, ...] = ()
    is_hint: bool = False
    retries: int = 0
    timeout_ms: int = 0
    known: Known | None = None
    after: tuple[int, ...] = ()

    @property
    def is_pinned(self) -> bool:
        """Say whether the pins are no mere wishes."""
        return bool(self.pins) and not self.is_hint


@dataclass(frozen=True, slots=True)
class Allocate:
    """A buffer of the scope's heap ring. Answered by ``Submitted`` or ``Blocked``."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ScopeBegin:
    """A scope opens inside the innermost one."""


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The innermost scope, which is not the run's own, ends."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send what can be sent. No other event sends, so the driver decides on batches."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The child has completed ``count`` frames since it was first ready.

    The last of them ended with ``outcome``; those before it that were not yet told succeeded.
    ``cause`` is the driver's number for the failure.
    """

    child: int
    count: int
    outcome: Outcome = Outcome.SUCCEEDED
    cause: int = NONE


@dataclass(frozen=True, slots=True)
class ChildReady:
    """The child takes frames from now on: at start, and again after it was lost and returns."""

    child: int


@dataclass(frozen=True, slots=True)
class ChildLost:
    """The child is gone, and all completions that it reported have been told.

    ``started``: the last frame that has begun in it; ``completed`` when none has since. Where
    ``repeats_lost`` is set only what had begun fails, or costs its task a retry. ``returns``: a
    ``ChildReady`` or another ``ChildLost`` will follow. Its frames in flight count as completed and
    failed from now on, also for frames elsewhere that require them: the driver tells the other
    children so, and they skip those.
    """

    child: int
    cause: int
    started: int
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Deadline:
    """Frame ``count`` of the child is past its timeout; of no effect if it has completed."""

    child: int
    count: int
    cause: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """What has not been sent, or is submitted from now on, does not run in this run."""

    cause: int


Event = (
    RunBegin
    | RunEnd
    | Submit
    | Allocate
    | ScopeBegin
    | ScopeEnd
    | Dispatch
    | Completion
    | ChildReady
    | ChildLost
    | Deadline
    | Cancel
)
