"""Random programs for an engine, and their expected edges and values, computed without an engine.

Memory is identified by buffer and tile, so the expected values do not depend on addresses. Each
task writes a hash of its number and of the values that it read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pto_devkit.abi import Tag
from pto_devkit.engine.interface import Hazards, Kind

TILE = 256
READS = (Tag.INPUT, Tag.INOUT)
WRITES = (Tag.OUTPUT, Tag.INOUT, Tag.OUTPUT_EXISTING)
Cell = tuple[int, int]


@dataclass(frozen=True)
class View:
    """The tiles ``low`` to ``high`` of a buffer. ``is_new``: the task allocates the buffer."""

    buffer: int
    low: int
    high: int
    tag: Tag
    is_new: bool = False

    def cells(self) -> list[Cell]:
        """Return the tiles, each with the number of its buffer."""
        return [(self.buffer, tile) for tile in range(self.low, self.high)]


@dataclass(frozen=True)
class Plan:
    """A task. Without members, it is an allocation of ``tiles`` tiles as ``buffer``."""

    number: int
    kind: Kind = Kind.SUB
    members: tuple[tuple[View, ...], ...] = ()
    pins: tuple[int, ...] = ()
    is_hint: bool = False
    retries: int = 0
    failures: int = 0
    """The number of attempts of the task that fail."""
    after: tuple[int, ...] = ()
    """The tasks from which this task has explicit edges."""
    buffer: int = -1
    tiles: int = 0

    def views(self) -> list[View]:
        """Return the views of all members."""
        return [view for member in self.members for view in member]


@dataclass(frozen=True)
class Begin:
    """The start of a scope."""


@dataclass(frozen=True)
class End:
    """The end of the innermost scope."""


Step = Plan | Begin | End


@dataclass(frozen=True)
class Program:
    """A random program: its children by kind, and its steps."""

    hazards: Hazards
    kinds: tuple[Kind, ...]
    steps: tuple[Step, ...]
    user_buffers: int


def value(plan: int, member: int, view: int, cell: int, inputs: tuple[object, ...]) -> int:
    """Return the value that a task writes to one tile."""
    return hash((plan, member, view, cell, inputs))


@dataclass
class ExpectedEdges:
    """Computes the edges of the tasks added so far."""

    hazards: Hazards
    entries: list[tuple[View, int, bool]] = field(default_factory=list)
    data: dict[int, set[int]] = field(default_factory=dict)
    """For each task, the producers whose failure poisons it."""
    order: dict[int, set[int]] = field(default_factory=dict)
    """For each task, all its producers."""

    def add(self, plan: Plan) -> None:
        """Add the next task of the program."""
        data = set(plan.after)
        order = set(plan.after)
        for view in plan.views():
            if view.is_new or view.tag is Tag.NO_DEP:
                continue
            writers = self._overlapping(view, is_writer=True)
            if view.tag in READS:
                data |= writers
                order |= writers
            if self.hazards is Hazards.FULL and view.tag in (Tag.OUTPUT, Tag.INOUT):
                order |= writers | self._overlapping(view, is_writer=False)
        self.data[plan.number] = data
        self.order[plan.number] = order
        for view in plan.views():
            if view.tag is Tag.INPUT and self.hazards is Hazards.FULL:
                self.entries.append((view, plan.number, False))
        if plan.tiles:
            whole = View(plan.buffer, 0, plan.tiles, Tag.OUTPUT)
            self.entries.append((whole, plan.number, True))
        for view in plan.views():
            if view.tag in WRITES:
                self.entries = [entry for entry in self.entries if not _covers(view, entry[0])]
                self.entries.append((view, plan.number, True))

    def _overlapping(self, view: View, *, is_writer: bool) -> set[int]:
        return {
            task
            for other, task, writes in self.entries
            if writes == is_writer
            and other.buffer == view.buffer
            and other.low < view.high
            and view.low < other.high
        }

    def poisoned(self, plans: list[Plan], failed: set[int]) -> set[int]:
        """Return the descendants of the failed tasks."""
        found: set[int] = set()
        for plan in plans:
            if plan.number not in failed and self.data[plan.number] & (failed | found):
                found.add(plan.number)
        return found


def _covers(view: View, other: View) -> bool:
    same = view.buffer == other.buffer
    return same and view.low <= other.low and other.high <= view.high


def sequential(plans: list[Plan], lost: set[int]) -> tuple[dict[Cell, object], dict[int, object]]:
    """Run the tasks in order; return the final memory, and the values that each task read.

    The values written by the tasks in ``lost`` are unknown, shown as None.
    """
    memory: dict[Cell, object] = {}
    seen: dict[int, object] = {}
    for plan in plans:
        if plan.tiles:
            for tile in range(plan.tiles):
                memory[plan.buffer, tile] = ("fresh", plan.buffer, tile)
        inputs = tuple(
            tuple(memory.get(cell, ("fresh", *cell)) for cell in read_cells(member))
            for member in plan.members
        )
        seen[plan.number] = inputs
        for number, member in enumerate(plan.members):
            for cell, content in written(plan.number, number, member, inputs[number]):
                memory[cell] = None if plan.number in lost else content
    return memory, seen


def read_cells(member: tuple[View, ...]) -> list[Cell]:
    """Return the tiles that a member reads, in order."""
    return [cell for view in member if view.tag in READS for cell in view.cells()]


def written(
    plan: int, number: int, member: tuple[View, ...], inputs: tuple[object, ...]
) -> list[tuple[Cell, object]]:
    """Return the tiles that a member writes, each with its value."""
    return [
        (cell, value(plan, number, place, offset, inputs))
        for place, view in enumerate(member)
        if view.tag in WRITES
        for offset, cell in enumerate(view.cells())
    ]


class ProgramWriter:
    """Generates one random program.

    ``has_chains``: the program has few buffers, only single tasks and no retries, so that many
    tasks can be sent early.
    """

    def __init__(
        self, numbers: random.Random, hazards: Hazards, *, tasks: int = 40, has_chains: bool = False
    ) -> None:
        self.numbers = numbers
        self.has_chains = has_chains
        self.hazards = hazards
        kinds = [Kind.SUB] * numbers.randint(1, 4) + [Kind.NEXT_LEVEL] * numbers.randint(0, 2)
        numbers.shuffle(kinds)
        self.kinds = tuple(kinds)
        self.user_buffers = numbers.randint(1, 2 if has_chains else 4)
        self.sizes = {
            buffer: numbers.randint(1, 1 if has_chains else 6)
            for buffer in range(self.user_buffers)
        }
        self.visible: list[list[int]] = [list(range(self.user_buffers))]
        self.tasks = tasks
        self.count = 0
        self.fails = numbers.random() < 0.6

    def write(self) -> Program:
        """Generate the program."""
        steps: list[Step] = []
        while self.count < self.tasks:
            choice = self.numbers.random()
            if choice < 0.12 and len(self.visible) < 7:
                self.visible.append([])
                steps.append(Begin())
            elif choice < 0.24 and len(self.visible) > 1:
                self.visible.pop()
                steps.append(End())
            elif choice < 0.32:
                steps.append(self._allocation())
            else:
                steps.append(self._task())
        steps += [End()] * (len(self.visible) - 1)
        return Program(self.hazards, self.kinds, tuple(steps), self.user_buffers)

    def _new_buffer(self) -> tuple[int, int]:
        buffer = len(self.sizes)
        self.sizes[buffer] = self.numbers.randint(1, 6)
        return buffer, self.sizes[buffer]

    def _allocation(self) -> Plan:
        buffer, tiles = self._new_buffer()
        self.visible[-1].append(buffer)
        self.count += 1
        return Plan(self.count - 1, buffer=buffer, tiles=tiles)

    def _task(self) -> Plan:
        numbers = self.numbers
        kind = numbers.choice(self.kinds)
        children = [child for child, each in enumerate(self.kinds) if each is kind]
        size = numbers.choice([1, 1, 1, numbers.randint(1, len(children))])
        size = 1 if self.has_chains else size
        members = self._members(size)
        pins = tuple(numbers.sample(children, size)) if numbers.random() < 0.3 else ()
        retries = 0 if self.has_chains else numbers.choice([0, 0, 0, 1, 2])
        failures = numbers.choice([0, 0, 1, 2]) if self.fails and numbers.random() < 0.3 else 0
        number = self.count
        after = (numbers.randrange(number),) if number and numbers.random() < 0.1 else ()
        self.count += 1
        is_hint = numbers.random() < 0.3
        return Plan(number, kind, members, pins, is_hint, retries, failures, after)

    def _members(self, size: int) -> tuple[tuple[View, ...], ...]:
        """Return members that do not access tiles which another member writes."""
        used: list[tuple[int, View]] = []
        for _ in range(self.numbers.randint(0, 3 + size)):
            member = self.numbers.randrange(size)
            view = self._view(sum(view.is_new for _, view in used))
            if all(
                not _meet(view, other) or (view.tag is other.tag is Tag.INPUT) for _, other in used
            ):
                used.append((member, view))
        new = [view.buffer for _, view in used if view.is_new]
        self.visible[-1] += new
        return tuple(
            tuple(view for owner, view in used if owner == member) for member in range(size)
        )

    def _view(self, new: int) -> View:
        numbers = self.numbers
        if new < 2 and numbers.random() < 0.2:
            buffer, tiles = self._new_buffer()
            return View(buffer, 0, tiles, Tag.OUTPUT, is_new=True)
        buffer = numbers.choice([each for scope in self.visible for each in scope])
        low = numbers.randrange(self.sizes[buffer])
        high = numbers.randint(low + 1, self.sizes[buffer])
        tags = [Tag.INPUT, Tag.INPUT, Tag.INOUT, Tag.OUTPUT]
        if self.hazards is Hazards.RAW:
            tags += [Tag.OUTPUT_EXISTING, Tag.NO_DEP]
        return View(buffer, low, high, numbers.choice(tags))


def _meet(view: View, other: View) -> bool:
    return view.buffer == other.buffer and view.low < other.high and other.low < view.high
