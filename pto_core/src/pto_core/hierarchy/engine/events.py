"""The events of an engine.

Every field is a number or a tuple of numbers, so that a native engine takes the same events as
plain structures. The driver keeps the callable of a task, its scalars, configuration and source
line; it also keeps texts and exceptions, and assigns them numbers (``cause``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NONE = -1
"""No task, no child, no cause. Valid numbers count from 0."""
CHILD_MEMORY_END = 1 << 48
"""Addresses of the memory of a child are below this."""


class Kind(IntEnum):
    """Which children can run a task."""

    NEXT_LEVEL = 0
    SUB = 1


class Tag(IntEnum):
    """The access of a task to a tensor; consumed at submit, never carried on."""

    INPUT = 0
    OUTPUT = 1
    INOUT = 2
    OUTPUT_EXISTING = 3
    NO_DEP = 4


class Hazards(IntEnum):
    """RAW: readers wait for writers. FULL: writers also wait for earlier readers and writers."""

    RAW = 0
    FULL = 1


class Outcome(IntEnum):
    """The outcome of a frame. SKIPPED: its requirement had failed, so it was not started."""

    SUCCEEDED = 0
    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Box:
    """The part of each dimension of its buffer that a view selects, the fastest dimension first.

    ``base`` is the first byte of the buffer; ``low[d] + extent[d] <= raw[d]`` in elements.
    """

    base: int
    element_bytes: int
    raw: tuple[int, ...]
    low: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: a range of bytes, or a box if it is not contiguous.

    ``address`` is its first byte. ``nbytes`` 0 is a key: it orders tasks by address and covers no
    bytes. OUTPUT with address 0 is allocated from the heap ring of the scope. ``child``: the child
    that has the memory; NONE is the host. Two children may have memory at the same address; a
    tensor overlaps only tensors of the same memory.
    """

    address: int
    nbytes: int
    tag: Tag
    box: Box | None = None
    child: int = NONE


@dataclass(frozen=True, slots=True)
class Member:
    """The arguments of one of the N executions of a task; a task that is not a group has one."""

    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """The result of a capture of the same submits, as distances in number of submits."""

    producers: tuple[tuple[int, int], ...] = ()
    """The producers of the task, and the reasons: the bits of an edge of the reference engine."""
    owners: tuple[int, ...] = ()
    """The owners of the buffers that it names."""


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A run begins, with the outermost scope open."""

    hazards: Hazards = Hazards.RAW


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of the submits: the outermost scope ends. The run finishes with its last task."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A task. Answered by ``Submitted`` or ``Blocked``.

    ``pins``: empty, or one child for each member, distinct in a group. ``is_hint``: the pins are
    hints. ``retries``: how often it may run again after a failure or the loss of its child; more
    than 0 declares it safe to repeat. ``timeout_ms`` 0 is none; the driver keeps time. ``after``:
    earlier tasks of the run that it also waits for, and whose failure poisons it. ``known``: set
    for a replay, whose tensors are neither looked up nor inserted; the caller may omit tensors that
    are not allocated and, with retries, not INOUT.
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
        """Return whether the pins are mandatory."""
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
    """Send all tasks that can be sent. No other event sends, so the driver decides on batches."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The child has completed ``count`` frames since it was first ready.

    The last of them ended with ``outcome``; the unreported ones before it succeeded. ``cause`` is
    the driver's number for the failure.
    """

    child: int
    count: int
    outcome: Outcome = Outcome.SUCCEEDED
    cause: int = NONE


@dataclass(frozen=True, slots=True)
class ChildReady:
    """The child accepts frames from now on: at start, and again after a restart."""

    child: int


@dataclass(frozen=True, slots=True)
class ChildLost:
    """The child is gone, and all its reported completions were passed on.

    ``started``: the last frame that has begun in it; ``completed`` if none has since. With
    ``repeats_lost``, only begun frames fail or use up a retry. ``returns``: a ``ChildReady`` or
    another ``ChildLost`` will follow. Its frames in flight count as completed and failed from now
    on, also for frames elsewhere that require them: the driver informs the other children, and they
    skip those.
    """

    child: int
    cause: int
    started: int
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Deadline:
    """Frame ``count`` of the child is past its timeout; no effect if it has completed."""

    child: int
    count: int
    cause: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the run: tasks that were not sent yet, or are submitted later, do not run."""

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
