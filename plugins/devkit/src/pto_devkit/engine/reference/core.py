"""The tables of the reference engine, which its parts share.

- *Heap rings*: slabs are reserved at the head and freed in order at the tail.
- *Slots*: tasks are numbered in the order of submits. Numbers are never reused, but slots are.
  Invariant: a task is in :attr:`Slots.tasks`, and has a reference, if and only if its state is
  not FREE.
- *Scopes*: an open scope keeps its tasks alive until it ends.
- *Queues* of tasks to send.
- *Children*: their frames in flight, and whether they accept frames.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from pto_core.errors import CapacityError, InternalError, ProtocolError
from pto_core.worker.states import Reference, TaskEvent, TaskState, Transitions, follow
from pto_devkit.engine.interface import (
    NONE,
    RINGS,
    SLAB_BYTES,
    Blocked,
    ChildConfiguration,
    Configuration,
    Hazards,
    Instruction,
    Requirement,
    RingConfiguration,
    Submit,
)
from pto_devkit.engine.reference.regions import Entry, RegionIndex

# ---- the four heap rings ----
#
# Offsets are virtual and only increase. A ring of n bytes is used in laps: lap k covers the offsets
# [k * n, (k + 1) * n), and each slab lies within one lap. The offset of a slab depends on the size
# of the ring and on earlier reservations, but not on when slabs were freed.


def rounded(nbytes: int) -> int:
    """Return the number of bytes that an output uses in its slab."""
    return -(-nbytes // SLAB_BYTES) * SLAB_BYTES


@dataclass(slots=True, eq=False)
class Slab:
    """The memory that one submit has reserved: [begin, end) in virtual offsets."""

    ring: int
    task: int
    begin: int
    end: int
    address: int
    is_released: bool = False
    """Whether the slab's task was consumed. The slab is freed once all older slabs are free."""

    def holds(self, begin: int, end: int) -> bool:
        """Return whether the slab contains all bytes of the range."""
        return self.address <= begin and end <= self.address + self.end - self.begin


class HeapRing:
    """A heap ring. ``slabs`` are the slabs in use, oldest first."""

    def __init__(self, number: int, configuration: RingConfiguration) -> None:
        self.number = number
        self.configuration = configuration
        self.slabs: deque[Slab] = deque()
        self.head = 0

    @property
    def size(self) -> int:
        """The size of the ring in bytes."""
        return self.configuration.size

    @property
    def used(self) -> int:
        """The number of bytes from the oldest slab to the head."""
        return self.head - self.slabs[0].begin if self.slabs else 0

    @property
    def held(self) -> int:
        """The total size of the slabs in use, without the unused ends of laps."""
        return sum(slab.end - slab.begin for slab in self.slabs)

    def restart(self) -> None:
        """Start again at offset 0. No slab may be in use."""
        self.head = 0

    def begin_of(self, nbytes: int) -> int | None:
        """Return the offset at which a new slab would begin; None if free space is missing."""
        if nbytes > self.size:
            raise CapacityError(
                f"a submit needs {nbytes} bytes of heap ring {self.number}, which has "
                f"{self.size}; set heap_ring_size to at least {nbytes}",
                name="heap_ring_size",
                value=nbytes,
                limit=self.size,
            )
        rest = -self.head % self.size
        begin = self.head if nbytes <= (rest or self.size) else self.head + rest
        oldest = self.slabs[0].begin if self.slabs else begin
        return begin if begin + nbytes - oldest <= self.size else None

    def reserve(self, task: int, begin: int, nbytes: int) -> Slab:
        """Create a slab at the offset that :meth:`begin_of` returned."""
        address = self.configuration.address + begin % self.size
        slab = Slab(self.number, task, begin, begin + nbytes, address)
        self.slabs.append(slab)
        self.head = slab.end
        return slab

    def release(self, slab: Slab) -> bool:
        """Free the slab once all older slabs are free. Return whether this call freed memory."""
        slab.is_released = True
        has_moved = False
        while self.slabs and self.slabs[0].is_released:
            self.slabs.popleft()
            has_moved = True
        return has_moved

    def contains(self, begin: int, end: int) -> bool:
        """Return whether any byte of the range belongs to the ring."""
        first = self.configuration.address
        return begin < first + self.size and first < end

    def owner(self, begin: int, end: int) -> Slab | None:
        """Return the slab of a live task that contains all bytes of the range."""
        for slab in self.slabs:
            if not slab.is_released and slab.holds(begin, end):
                return slab
        return None


# ---- tasks, their slots, and their reference counts ----


class Edge(IntFlag):
    """The reasons why a task waits for a producer, and whether a failure poisons the task."""

    ORDERS = 0
    """The task overwrites memory that the producer read or wrote."""
    DATA = 1
    """The task reads an output of the producer and keeps the producer's slot alive."""
    EXPLICIT = 2
    """The program requested the dependency (``after``)."""
    CERTAIN = 4
    """The regions share bytes. Without this bit, it is only known that their hulls overlap."""

    @property
    def poisons(self) -> bool:
        """Return whether a failure of the producer poisons the consumer."""
        return bool(self & (Edge.DATA | Edge.EXPLICIT))


@dataclass(slots=True, eq=False)
class Task:
    """A task that was submitted and not consumed yet."""

    number: int
    slot: int
    spec: Submit | None
    """The submission; None for an allocation."""
    slab: Slab | None = None
    producers: dict[int, Edge] = field(default_factory=dict)
    """All producers that were found at the submit, finished or not."""
    unfinished: set[int] = field(default_factory=set)
    """The unfinished producers. The task waits for them, or was sent before its producer ended."""
    consumers: list[int] = field(default_factory=list)
    """The tasks that wait for this task, in ascending order; empty after it has finished."""
    holds: list[tuple[int, Reference]] = field(default_factory=list)
    """The references to other tasks that the task has until it finishes."""
    references: Counter[Reference] = field(default_factory=Counter)
    """The number of references to this task, by kind."""
    entries: list[Entry] = field(default_factory=list)
    """The entries of the task in the region index; some may have been removed from the index."""
    attempts: int = 0
    """The number of retries that remain."""
    ended: int = 0
    """The number of members that have ended in this attempt."""
    failure: int | None = None
    """The cause of the first member that failed in this attempt."""
    has_begun: bool = False
    """Whether a member of this attempt is known to have begun; final when the attempt ends."""
    was_skipped: bool = False
    may_be_skipped: bool = False
    """Whether the driver has withdrawn its frame, or a frame that its frame requires."""
    poison: int | None = None
    """The failed task that poisons this task, which is still in a child."""
    children: tuple[tuple[int, int], ...] = ()
    """The child and the frame number of each member in this attempt."""
    last_producer: int = NONE
    """The child of the last producer that finished, or of the producer before which it was sent."""
    follower: int = NONE
    """The unpinned consumer that may be sent before this attempt has ended."""
    cancelled: int | None = None
    """The cause if the task was cancelled while it was in no child."""
    is_delayed: bool = False
    """Whether its next attempt waits for ``Resume``; then it is PENDING without a producer."""
    has_saved_regions: bool = False

    @property
    def members(self) -> int:
        """The number of frames in an attempt."""
        return 0 if self.spec is None else len(self.spec.members)


def spec_of(task: Task) -> Submit:
    """Return the submission of a task that is not an allocation."""
    assert task.spec is not None, "an allocation has no producers and is never sent"
    return task.spec


class Slots:
    """All tasks by number, the state of each slot, and the free slots."""

    def __init__(self, transitions: Transitions) -> None:
        self.transitions = transitions
        self.states: list[TaskState] = []
        self.free: list[int] = []
        self.tasks: dict[int, Task] = {}
        self.next_number = 0

    def take(self, spec: Submit | None) -> Task:
        """Return a new task in a free slot. The caller must set its state."""
        if not self.free:
            self.free.append(len(self.states))
            self.states.append(TaskState.FREE)
        task = Task(self.next_number, self.free.pop(), spec)
        self.next_number += 1
        self.tasks[task.number] = task
        return task

    def state(self, task: Task) -> TaskState:
        """Return the task's state."""
        return self.states[task.slot]

    def move(self, task: Task, event: TaskEvent) -> None:
        """Change the state. If the table does not list the transition, raise and change nothing."""
        try:
            self.states[task.slot] = follow(self.states[task.slot], event, self.transitions)
        except InternalError as error:
            error.add_note(f"task {task.number}: {task.spec}, producers {sorted(task.producers)}")
            raise

    def is_live(self, number: int) -> bool:
        """Return whether the task has not been consumed yet."""
        return number in self.tasks

    def is_unfinished(self, number: int) -> bool:
        """Return whether the task has neither completed nor failed."""
        task = self.tasks.get(number)
        return task is not None and task.references[Reference.SELF] > 0

    def give_back(self, task: Task) -> None:
        """Free the slot of a consumed task."""
        self.move(task, TaskEvent.RECYCLE)
        del self.tasks[task.number]
        self.free.append(task.slot)


class Scopes:
    """``open[d]`` lists the tasks of the open scope at depth d; ``open[0]`` belongs to the run."""

    def __init__(self) -> None:
        self.open: list[list[int]] = [[]]

    @property
    def depth(self) -> int:
        """The depth of the innermost scope."""
        return len(self.open) - 1

    @property
    def ring(self) -> int:
        """The number of the heap ring that the innermost scope uses."""
        return min(self.depth, RINGS - 1)

    def begin(self) -> None:
        """Open a scope inside the innermost open scope."""
        self.open.append([])

    def enter(self, task: int) -> None:
        """Add the task to the innermost scope, which keeps the task alive."""
        self.open[-1].append(task)

    def end(self) -> list[int]:
        """Close the innermost scope and return its tasks."""
        return self.open.pop()

    def depth_of(self, task: int) -> int | None:
        """Return the depth of the open scope that keeps the task alive."""
        for depth, tasks in enumerate(self.open):
            if task in tasks:
                return depth
        return None


class Queues:
    """Tasks to send; each queue is in the order in which tasks entered it.

    Invariants: a task is in ``singles`` or ``groups`` if and only if it is READY. A task in
    ``early`` is PENDING, waits for one producer, which is RUNNING, and may be sent before that
    producer ends.
    """

    def __init__(self) -> None:
        self.singles: list[int] = []
        self.groups: list[int] = []
        self.early: list[int] = []
        """Tasks that may be sent early; their frames have a requirement."""
        self.groups_in_a_row = 0
        """The number of groups sent since the last single task, while a single task waited."""

    def add(self, task: int, *, is_group: bool) -> None:
        """Add a task that is READY now."""
        (self.groups if is_group else self.singles).append(task)

    def remove(self, task: int) -> None:
        """Remove a task, because its state or the state of its producer changes."""
        for queue in (self.singles, self.groups, self.early):
            if task in queue:
                queue.remove(task)

    def remove_early(self, task: int) -> None:
        """Remove a task from the queue of tasks that may be sent early, if it is there."""
        if task in self.early:
            self.early.remove(task)


class ChildState(IntEnum):
    """EXPECTED: the child will become ready, and tasks wait for it. LOST: no task waits for it."""

    EXPECTED = 0
    READY = 1
    LOST = 2


@dataclass(slots=True, eq=False)
class InFlight:
    """A frame that was sent and has not completed. ``task``: NONE after it was withdrawn."""

    count: int
    task: int
    member: int
    requirement: Requirement | None
    deadline: int | None = None
    """The cause of the failure if the frame exceeded its time limit, otherwise None."""


@dataclass(slots=True, eq=False)
class Child:
    """A child. Invariant: ``frames`` are those with the numbers ``completed`` + 1 to ``sent``."""

    number: int
    configuration: ChildConfiguration
    state: ChildState = ChildState.EXPECTED
    sent: int = 0
    completed: int = 0
    """Never decreases: frames that were lost with the child count as completed."""
    frames: deque[InFlight] = field(default_factory=deque)
    cause: int = NONE
    """The cause of the child's last loss."""
    lost: list[range] = field(default_factory=list)
    """For each loss of the child: the numbers of the frames that were in flight."""

    @property
    def has_space(self) -> bool:
        """Return whether a frame can be sent now."""
        return self.state is ChildState.READY and len(self.frames) < self.configuration.window

    @property
    def load(self) -> int:
        """The number of frames in flight that have a task."""
        return sum(frame.task != NONE for frame in self.frames)

    def send(self, task: int, member: int, requirement: Requirement | None) -> InFlight:
        """Add a frame in flight; the child must have free space."""
        self.sent += 1
        frame = InFlight(self.sent, task, member, requirement)
        self.frames.append(frame)
        return frame

    def complete(self) -> InFlight:
        """Remove the oldest frame in flight."""
        self.completed += 1
        return self.frames.popleft()

    def lose(self) -> list[InFlight]:
        """Remove and return all frames in flight."""
        lost = list(self.frames)
        self.frames.clear()
        self.lost.append(range(self.completed + 1, self.sent + 1))
        self.completed = self.sent
        return lost

    def has_lost(self, count: int) -> bool:
        """Return whether frame ``count`` was in flight when the child was lost."""
        return any(count in each for each in self.lost)


class Children:
    """All children, by number."""

    def __init__(self, configurations: tuple[ChildConfiguration, ...]) -> None:
        self.all = [Child(number, each) for number, each in enumerate(configurations)]

    def __getitem__(self, number: int) -> Child:
        if not 0 <= number < len(self.all):
            raise ProtocolError(
                f"child {number} does not exist; there are {len(self.all)} children", child=number
            )
        return self.all[number]

    def of_kind(self, kind: int) -> list[Child]:
        """Return the children that run tasks of ``kind``, in ascending order."""
        return [child for child in self.all if child.configuration.kind == kind]


class Run:
    """A run; its number is its index in :attr:`Core.runs`."""

    def __init__(self) -> None:
        self.is_open = True
        """From its start until all its tasks have finished."""
        self.is_ending = False
        self.cancelled: int | None = None
        """The cause of the cancellation; None before a cancellation."""
        self.tasks = 0
        """The number of tasks submitted in this run."""
        self.unfinished = 0
        """The number of these tasks that have not finished."""
        self.scopes = Scopes()
        self.failed: list[tuple[int, int]] = []
        self.poisoned: list[tuple[int, int]] = []
        self.blocked: Blocked | None = None
        """The last submit if it was blocked and no memory was freed since."""


class Core:
    """The state of an engine.

    If a run begins while no other run is open, only the children and the rings keep their state.
    """

    def __init__(self, configuration: Configuration, transitions: Transitions) -> None:
        self.configuration = configuration
        self.slots = Slots(transitions)
        self.children = Children(configuration.children)
        self.rings = [HeapRing(*pair) for pair in enumerate(configuration.rings)]
        self.queues = Queues()
        self.instructions: list[Instruction] = []
        self.freed_rings: set[int] = set()
        """The rings in which the current event freed memory."""
        self.restart(Hazards.RAW)

    def run_of(self, task: Task) -> Run:
        """Return the run of a task that has not finished."""
        return self.runs[spec_of(task).run]

    def forget_failures(self, run: Run) -> None:
        """Let the failed tasks of a finished run poison no later task."""
        for number, _ in run.failed + run.poisoned:
            del self.roots[number]
        known = self.slots.tasks.keys() | self.roots.keys()
        entries = self.regions.entries
        self.regions.forget([entry for entry in entries if entry.task not in known])

    def restart(self, hazards: Hazards) -> None:
        """Clear the data of the previous runs."""
        self.hazards = hazards
        """Those of all open runs."""
        self.runs: list[Run] = []
        self.regions = RegionIndex()
        self.first_task = self.slots.next_number
        """The number of the first task since this call."""
        self.key_count = 0
        """The number of keys assigned to OUTPUT tensors of size 0."""
        self.conservative_edges = 0
        self.roots: dict[int, int] = {}
        """The tasks that failed since then, even consumed ones; they are the roots of poison."""
        for ring in self.rings:
            ring.restart()
