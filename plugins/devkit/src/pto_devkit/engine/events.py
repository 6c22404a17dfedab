"""The events of an engine; C++ has the same in ``engine/interface.hpp``.

Every field is a number or a tuple of numbers. The driver stores all other data of tasks: callables,
scalars, configurations and source lines. It also stores texts and exceptions under ascending
numbers; ``cause`` is such a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pto_core.hierarchy.child_specs import Kind as Kind
from pto_devkit.abi import Tag

NONE = -1
"""Means "no task", "no child" or "no cause". Valid numbers start at 0."""
CHILD_MEMORY_END = 1 << 48
"""The upper limit for addresses in the memory of a child."""


class Hazards(IntEnum):
    """RAW: readers wait for earlier writers. FULL: writers also wait for earlier accesses."""

    RAW = 0
    FULL = 1


class Outcome(IntEnum):
    """The outcome of a frame. SKIPPED: it did not start, because its requirement had failed."""

    SUCCEEDED = 0
    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Box:
    """The elements of a buffer that a view selects, by dimension, the fastest dimension first.

    ``base`` is the address of the buffer. ``raw`` is the size of each dimension, ``low`` the first
    selected element and ``extent`` the number of selected elements: ``low[d] + extent[d] <=
    raw[d]``.
    """

    base: int
    element_bytes: int
    raw: tuple[int, ...]
    low: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: a range of bytes, or a box if the tensor is not contiguous.

    ``address`` is the address of its first byte. A tensor with ``nbytes`` 0 is a key: it orders
    tasks by its address and covers no bytes. An OUTPUT with address 0 is allocated from the heap
    ring of the scope. ``child`` is the child that owns the memory; NONE stands for the host. Two
    children may have memory at the same address, so only tensors with the same ``child`` can
    overlap.
    """

    address: int
    nbytes: int
    tag: Tag
    box: Box | None = None
    child: int = NONE


@dataclass(frozen=True, slots=True)
class Member:
    """The arguments of one member of a group. A task that is not a group has one member."""

    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """The dependencies that a capture found. A distance is a number of submits before the task."""

    producers: tuple[tuple[int, int], ...] = ()
    """For each producer of the task: its distance, and the bits of the ``Edge`` to it."""
    owners: tuple[int, ...] = ()
    """The distances of the tasks that own the buffers of its tensors."""


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A run begins; its outermost scope is open."""

    hazards: Hazards = Hazards.RAW


@dataclass(frozen=True, slots=True)
class RunEnd:
    """All tasks of the run were submitted; its outermost scope ends."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A task is submitted. The result is ``Submitted`` or ``Blocked``.

    ``pins``: empty, or one child for each member; the pins of a group are different. ``is_hint``:
    the pins are only hints. ``retries``: how often the task may run again after a failure or the
    loss of its child; a value above 0 declares that repeating the task is safe. ``timeout_ms``: 0
    means no limit; the driver measures the time. ``after``: earlier tasks of the run for which the
    task waits too; if one of them fails, this task is poisoned. ``known``: set in a replay. The
    tensors of a replayed task are neither looked up nor inserted, so the caller may omit them,
    except tensors that are allocated and, with retries, INOUT tensors.
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
        """Return whether the pins are mandatory, not hints."""
        return bool(self.pins) and not self.is_hint


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate a buffer from the scope's heap ring. The result is ``Submitted`` or ``Blocked``."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ScopeBegin:
    """A scope opens inside the innermost open scope."""


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The innermost scope ends. It must not be the outermost scope of the run."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send all tasks that can be sent. Only this event sends, so the driver chooses the batches."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The child has completed ``count`` frames in total since it first became ready.

    The last of them ended with ``outcome``. The earlier frames that were not reported yet have
    succeeded. ``cause`` is the driver's number for a failure.
    """

    child: int
    count: int
    outcome: Outcome = Outcome.SUCCEEDED
    cause: int = NONE


@dataclass(frozen=True, slots=True)
class ChildReady:
    """The child accepts frames from now on: after its start, and again after any loss."""

    child: int


@dataclass(frozen=True, slots=True)
class ChildLost:
    """The child is lost. The driver reported all completions of the child before this event.

    ``started``: the number of the last frame that began in the child; if no frame began after the
    last completed frame, it equals ``completed``. With ``repeats_lost``, only frames that began
    fail or use a retry. ``returns``: a ``ChildReady`` or another ``ChildLost`` will follow. The
    frames in flight count as completed and failed from now on, also as requirements of frames in
    other children: the driver informs these children, which skip the dependent frames.
    """

    child: int
    cause: int
    started: int
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Deadline:
    """Frame ``count`` of the child exceeded its time limit. No effect on a completed frame."""

    child: int
    count: int
    cause: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The run is cancelled. Tasks that were not sent yet, or are submitted later, do not run."""

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
