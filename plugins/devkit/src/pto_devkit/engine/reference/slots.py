"""Tasks, their slots, and their reference counts.

Tasks are numbered in the order of submits. Numbers are never reused, but slots are. Invariant: a
task is in :attr:`Slots.tasks`, and has a reference, if and only if its state is not FREE.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntFlag

from pto_core.errors import InternalError
from pto_core.hierarchy.states import Reference, State, StateEvent, Transitions, follow
from pto_devkit.engine.events import NONE, Submit
from pto_devkit.engine.reference.heap import Slab
from pto_devkit.engine.reference.regions import Entry


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
    poison: int | None = None
    """The failed task that poisons this task, which is still in a child."""
    children: tuple[tuple[int, int], ...] = ()
    """The child and the frame number of each member in this attempt."""
    last_producer: int = NONE
    """The child of the last producer that finished, or of the producer before which it was sent."""
    follower: int = NONE
    """The unpinned consumer that may be sent before this attempt has ended."""
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
        self.states: list[State] = []
        self.free: list[int] = []
        self.tasks: dict[int, Task] = {}
        self.next_number = 0

    def take(self, spec: Submit | None) -> Task:
        """Return a new task in a free slot. The caller must set its state."""
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
        self.move(task, StateEvent.RECYCLE)
        del self.tasks[task.number]
        self.free.append(task.slot)
