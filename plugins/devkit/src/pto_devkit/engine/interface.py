"""The interface of the engines that tests drive: events, instructions, configuration.

C++ has the same events and instructions in ``engine/interface.hpp``. Every field is a number or a
tuple of numbers. The driver stores all other data of tasks: callables, scalars, configurations and
source lines. It also stores texts and exceptions under ascending numbers; ``cause`` is such a
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pto_core.errors import UsageError
from pto_core.worker.child_specs import Kind as Kind
from pto_core.worker.deadlock import Deadlock
from pto_core.worker.failures import Result as Result
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
    """The outcome of a frame.

    SKIPPED: it did not start, because its requirement had failed or the driver withdrew it.
    """

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
    """A run begins; its outermost scope is open.

    Other runs with the same hazards may be open. The number of the run is the smallest that no
    open run has. A failure poisons tasks of other runs until its own run has finished.
    """

    hazards: Hazards = Hazards.RAW


@dataclass(frozen=True, slots=True)
class RunEnd:
    """All tasks of the run were submitted; its outermost scope ends."""

    run: int = 0


@dataclass(frozen=True, slots=True)
class Submit:
    """A task is submitted. The result is ``Submitted`` or ``Blocked``.

    ``pins``: empty, or one child for each member; the pins of a group are different. ``is_hint``:
    the pins are only hints. ``retries``: how often the task may run again after a failure or the
    loss of its child; a value above 0 declares that repeating the task is safe. ``timeout_ms``: 0
    means no limit; the driver measures the time. ``after``: earlier tasks of the run for which the
    task waits too; if one of them fails, this task is poisoned. ``known``: set in a replay. The
    tensors of a replayed task are neither looked up nor inserted, so the caller may omit them,
    except tensors that are allocated and, with retries, INOUT tensors. ``run``: its run.
    """

    kind: Kind
    members: tuple[Member, ...] = (Member(),)
    pins: tuple[int, ...] = ()
    is_hint: bool = False
    retries: int = 0
    timeout_ms: int = 0
    known: Known | None = None
    after: tuple[int, ...] = ()
    run: int = 0

    @property
    def is_pinned(self) -> bool:
        """Return whether the pins are mandatory, not hints."""
        return bool(self.pins) and not self.is_hint


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate a buffer from the scope's heap ring. The result is ``Submitted`` or ``Blocked``."""

    nbytes: int
    run: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The program no longer repeats the blocked submit of this run."""

    run: int = 0


@dataclass(frozen=True, slots=True)
class ScopeBegin:
    """A scope opens inside the innermost open scope of the run."""

    run: int = 0


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The innermost scope of the run ends. It must not be the outermost scope."""

    run: int = 0


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
    run: int = 0


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The driver asks the child not to begin frame ``count``, whose task is not a group.

    The child then skips the frame, unless it has begun. Other children then skip frames that
    require it.
    """

    child: int
    count: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The frame, for which ``Withdraw`` was reported, has not begun and will not begin.

    Its task can be sent again at once. The frame stays in flight without a task until the child
    reports it as skipped.
    """

    child: int
    count: int


@dataclass(frozen=True, slots=True)
class CancelTask:
    """A task that is in no child does not run.

    It fails with ``cause`` when its last producer has ended. A task in a child only loses its
    further attempts.
    """

    task: int
    cause: int


@dataclass(frozen=True, slots=True)
class Delay:
    """The next attempt of a task in a child waits for ``Resume``, if the task may run again."""

    task: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The delay of a task ends. No effect if the task is not delayed, or has ended."""

    task: int


Event = (
    RunBegin
    | RunEnd
    | Submit
    | Allocate
    | GiveUp
    | ScopeBegin
    | ScopeEnd
    | Dispatch
    | Completion
    | ChildReady
    | ChildLost
    | Deadline
    | Cancel
    | Withdraw
    | Withdrawn
    | CancelTask
    | Delay
    | Resume
)


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
    """Every task of the run has ended.

    ``failed``: pairs of a task and its cause; the first failure comes first. ``poisoned``: pairs of
    a task and its root.
    """

    tasks: int
    failed: tuple[tuple[int, int], ...] = ()
    poisoned: tuple[tuple[int, int], ...] = ()
    run: int = 0


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


RINGS = 4
SLAB_BYTES = 1024
DEFAULT_WINDOW = 64


@dataclass(frozen=True, slots=True)
class ChildConfiguration:
    """A child: the kind of tasks that it runs, and the maximum number of its frames in flight."""

    kind: Kind
    window: int = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True)
class RingConfiguration:
    """A heap ring. The engine never accesses its memory. Sizes are multiples of ``SLAB_BYTES``."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """Children are identified by their index in ``children``; scopes of equal depth share a ring.

    ``repeats_lost``: whether tasks of a lost child run again. If it is true, a task that had not
    started runs again, and a task that had started runs again if it has retries left. If it is
    false, all of these tasks fail.
    """

    children: tuple[ChildConfiguration, ...]
    rings: tuple[RingConfiguration, ...]
    repeats_lost: bool = False

    def __post_init__(self) -> None:
        if len(self.rings) != RINGS:
            raise UsageError(f"{len(self.rings)} heap rings given; pass {RINGS}", name="rings")
        for ring in self.rings:
            if ring.size < SLAB_BYTES or ring.size % SLAB_BYTES or ring.address % SLAB_BYTES:
                raise UsageError(
                    f"a heap ring of {ring.size} bytes at {ring.address:#x}; heap_ring_size must "
                    f"be a multiple of {SLAB_BYTES}, at least {SLAB_BYTES}",
                    name="heap_ring_size",
                    value=ring.size,
                )
        for child in self.children:
            if child.window < 1:
                raise UsageError(f"a window of {child.window} frames; pass at least 1")


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

    def deadlock(self, run: int = 0) -> Deadlock | None:
        """Return the proof that the last submit of a run, which was blocked, can never succeed.

        Returns None if the submit was not blocked or may still succeed: as long as the last submit
        of any open run was not blocked, this run can continue.
        """

    def snapshot(self) -> Snapshot:
        """Return the observable state."""

    def validate(self) -> None:
        """Raise :class:`~pto_core.errors.InternalError` if an invariant is broken; for tests."""
