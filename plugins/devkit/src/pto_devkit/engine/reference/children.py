"""The children of the engine: their frames in flight, and whether they accept frames."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from pto_core.errors import ProtocolError
from pto_devkit.engine.configuration import ChildConfiguration
from pto_devkit.engine.events import NONE
from pto_devkit.engine.instructions import Requirement


class ChildState(IntEnum):
    """EXPECTED: the child will become ready, and tasks wait for it. LOST: no task waits for it."""

    EXPECTED = 0
    READY = 1
    LOST = 2


@dataclass(slots=True, eq=False)
class InFlight:
    """A frame that was sent and has not completed."""

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
