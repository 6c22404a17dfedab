"""The events of an engine.

Every field is a number or a tuple of numbers, so that a native engine can take the same events as
plain structures. The driver stores callables, scalars, configurations and source lines of tasks. It
also stores texts and exceptions, and numbers them; ``cause`` is such a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NONE = -1
"""Stands for no task, no child or no cause. Valid numbers start at 0."""
CHILD_MEMORY_END = 1 << 48
"""An upper limit for addresses in the memory of a child."""


class Kind(IntEnum):
    """The kind of child that can run a task."""

    NEXT_LEVEL = 0
    SUB = 1


class Tag(IntEnum):
    """The access of a task to a tensor. Only the submit uses it."""

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
    """The outcome of a frame. SKIPPED: it was not started, because its requirement had failed."""

    SUCCEEDED = 0
    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Box:
    """The part of a buffer that a view selects in each dimension, the fastest dimension first.

    ``base`` is the first byte of the buffer. ``low[d] + extent[d] <= raw[d]`` holds in elements.
    """

    base: int
    element_bytes: int
    raw: tuple[int, ...]
    low: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: a range of bytes, or a box if the tensor is not contiguous.

    ``address`` is its first byte. A tensor with ``nbytes`` 0 is a key: it orders tasks by address
    and covers no bytes. An OUTPUT with address 0 is allocated from the heap ring of the scope.
    ``child`` is the child that owns the memory; NONE stands for the host. Two children may have
    memory at the same address, so a tensor overlaps only tensors of the same memory.
    """

    address: int
    nbytes: int
    tag: Tag
    box: Box | None = None
    child: int = NONE


@dataclass(frozen=True, slots=True)
class Member:
    """The arguments of one member of a group; a task that is not a group has one member."""

    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """Dependencies that a capture of the same submits found; distances count submits."""

    producers: tuple[tuple[int, int], ...] = ()
    """The producers of the task, and for each the reasons as bits of an edge."""
    owners: tuple[int, ...] = ()
    """The tasks that own the buffers of its tensors."""


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A run begins, with the outermost scope open."""

    hazards: Hazards = Hazards.RAW


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of the submits closes the outermost scope. The run finishes with its last task."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A task is submitted. Answered by ``Submitted`` or ``Blocked``.

    ``pins``: empty, or one child for each member; the pins of a group are distinct. ``is_hint``:
    the pins are hints. ``retries``: how often the task may run again after a failure or the loss of
    its child; a value above 0 declares that repeating the task is safe. ``timeout_ms``: 0 is no
    limit; the driver measures the time. ``after``: earlier tasks of the run that it also waits for,
    and whose failure poisons it. ``known``: set in a replay, whose tensors are neither looked up
    nor inserted; the caller may omit tensors, except those that are allocated and, with retries,
    INOUT ones.
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
    """Allocate a buffer from the scope's heap ring. Answered by ``Submitted`` or ``Blocked``."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ScopeBegin:
    """A scope opens inside the innermost one."""


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The innermost scope ends. It is not the outermost scope of the run."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send all tasks that can be sent. Only this event sends, so the driver chooses the batches."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The child has completed ``count`` frames in total since it first became ready.

    The last frame ended with ``outcome``. The frames before it that were not reported yet
    succeeded. ``cause`` is the driver's number for a failure.
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
    """The child is lost. All completions that it reported were passed on before this event.

    ``started``: the number of the last frame that began in the child; it equals ``completed`` if
    none began since. With ``repeats_lost``, only frames that began fail or use up a retry.
    ``returns``: a ``ChildReady`` or another ``ChildLost`` will follow. The child's frames in flight
    count as completed and failed from now on, also as requirements of frames elsewhere: the driver
    informs the other children, which skip those frames.
    """

    child: int
    cause: int
    started: int
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Deadline:
    """Frame ``count`` of the child exceeded its time limit. No effect if it has completed."""

    child: int
    count: int
    cause: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the run. Tasks that were not sent yet, or are submitted later, do not run."""

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
