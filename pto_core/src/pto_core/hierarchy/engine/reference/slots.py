"""Tasks, their slots, and their reference counts.

Tasks are numbered in the order of submits. Numbers are never reused; slots are. Invariant: a task
is in :attr:`Slots.tasks` if and only if its state is not FREE, and if and only if it has a
reference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntFlag

from pto_core.errors import InternalError
from pto_core.hierarchy.engine.events import NONE, Submit
from pto_core.hierarchy.engine.reference.heap import Slab
from pto_core.hierarchy.engine.reference.regions import Entry
from pto_core.hierarchy.states import Reference, State, StateEvent, Transitions, follow


class Edge(IntFlag):
    """The reasons why a task waits for a producer. A poisoning edge passes a failure on."""

    ORDERS = 0
    """The task overwrites memory that the producer read or wrote."""
    DATA = 1
    """The task reads an output of the producer, and keeps the producer's slot alive."""
    EXPLICIT = 2
    """The program requested the edge (``after``)."""
    CERTAIN = 4
    """The regions certainly share bytes; without this bit, perhaps only their hulls overlap."""

    @property
    def poisons(self) -> bool:
        """Return whether a failure of the producer poisons the consumer."""
        return bool(self & (Edge.DATA | Edge.EXPLICIT))


@dataclass(slots=True, eq=False)
class Task:
    """A task that has not been consumed."""

    number: int
    slot: int
    spec: Submit | None
    """None for an allocation."""
    slab: Slab | None = None
    producers: dict[int, Edge] = field(default_factory=dict)
    """All producers found at the submit, finished or not."""
    unfinished: set[int] = field(default_factory=set)
    """The unfinished producers, because of which the task is PENDING, or was sent early."""
    consumers: list[int] = field(default_factory=list)
    """The tasks that wait for it, in ascending order; empty after it has finished."""
    holds: list[tuple[int, Reference]] = field(default_factory=list)
    """The references that the task holds on other tasks until it finishes."""
    references: Counter[Reference] = field(default_factory=Counter)
    """The number of references to this task."""
    entries: list[Entry] = field(default_factory=list)
    """Its entries in the region index, as writer or reader. Some may have been removed already."""
    attempts: int = 0
    """The remaining retries."""
    ended: int = 0
    """The number of members of this attempt that have ended."""
    failure: int | None = None
    """The cause of the first member that failed in this attempt."""
    has_begun: bool = False
    """Whether a member failed in this attempt; final once the attempt has ended."""
    was_skipped: bool = False
    poison: int | None = None
    """The failed task that poisons it, while the task is still in a child."""
    children: tuple[tuple[int, int], ...] = ()
    """The child and frame of each member in this attempt."""
    last_producer: int = NONE
    """The child of the producer that finished last, or behind which the task was sent early."""
    follower: int = NONE
    """The unpinned consumer that may be sent early behind this attempt."""
    has_saved_regions: bool = False

    @property
    def members(self) -> int:
        """The number of frames in one attempt."""
        return 0 if self.spec is None else len(self.spec.members)


def spec_of(task: Task) -> Submit:
    """Return the submission; an allocation has none."""
    assert task.spec is not None, "an allocation has no producers and is never sent"
    return task.spec


class Slots:
    """The states by slot, the free slots, and the tasks by number."""

    def __init__(self, transitions: Transitions) -> None:
        self.transitions = transitions
        self.states: list[State] = []
        self.free: list[int] = []
        self.tasks: dict[int, Task] = {}
        self.next_number = 0

    def take(self, spec: Submit | None) -> Task:
        """Return a new task in a free slot. The caller sets its state."""
        if not self.free:
            self.free.append(len(self.states))
            self.states.append(State.FREE)
        task = Task(self.next_number, self.free.pop(), spec)
        self.next_number += 1
        self.tasks[task.number] = task
        return task

    def state(self, task: Task) -> State:
        """Return the task's state."""
        return self.states[task.slot]

    def move(self, task: Task, event: StateEvent) -> None:
        """Change the state. A change that the table does not list raises and has no effect."""
        try:
            self.states[task.slot] = follow(self.states[task.slot], event, self.transitions)
        except InternalError as error:
            error.add_note(f"task {task.number}: {task.spec}, producers {sorted(task.producers)}")
            raise

    def is_live(self, number: int) -> bool:
        """Return whether the task was not consumed yet."""
        return number in self.tasks

    def is_unfinished(self, number: int) -> bool:
        """Return whether the task has neither completed nor failed."""
        task = self.tasks.get(number)
        return task is not None and task.references[Reference.SELF] > 0

    def give_back(self, task: Task) -> None:
        """Free the slot of a consumed task."""
        self.move(task, StateEvent.RECYCLE)
        del self.tasks[task.number]
        self.free.append(task.slot)
