"""Tasks, their slots, and the references that keep them alive.

Tasks are numbered in the order of submits, and numbers are never reused; slots are. Invariant: a
task is in :attr:`Slots.tasks` exactly while its state is not FREE, and while it has a reference.
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
    """It overwrites memory that the producer read or wrote."""
    DATA = 1
    """It reads an output of the producer, and keeps the producer's slot."""
    EXPLICIT = 2
    """The program requested it."""
    CERTAIN = 4
    """Not only by byte hulls of boxes of different raw shapes."""

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
    """None: an allocation."""
    slab: Slab | None = None
    producers: dict[int, Edge] = field(default_factory=dict)
    """All producers from the submit, finished or not."""
    unfinished: set[int] = field(default_factory=set)
    """The unfinished producers: the reason why it is PENDING, or RUNNING early."""
    consumers: list[int] = field(default_factory=list)
    """The tasks that wait for it, ascending; empty after it has finished."""
    holds: list[tuple[int, Reference]] = field(default_factory=list)
    """The references that it holds on others until it finishes."""
    references: Counter[Reference] = field(default_factory=Counter)
    """The references on itself."""
    entries: list[Entry] = field(default_factory=list)
    """Its entries in the region index, as writer or reader; some may have been covered since."""
    attempts: int = 0
    """The remaining retries."""
    ended: int = 0
    """Members of this attempt that have ended."""
    failure: int | None = None
    """The cause of the first member that failed in this attempt."""
    has_begun: bool = False
    """Whether a member failed in this attempt; final when the attempt ends."""
    was_skipped: bool = False
    poison: int | None = None
    """The root of its poison, while it is still in a child."""
    children: tuple[tuple[int, int], ...] = ()
    """Child and frame of each member of this attempt."""
    last_producer: int = NONE
    """The child of the last finished producer, or of the producer that it was sent after."""
    follower: int = NONE
    """The unpinned consumer that may be sent early after this attempt."""
    has_saved_regions: bool = False

    @property
    def members(self) -> int:
        """The number of frames of an attempt."""
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
        """Return a new task in a free slot; the caller moves it to its state."""
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
        """Change the state as the table states; a refused event changes nothing."""
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
