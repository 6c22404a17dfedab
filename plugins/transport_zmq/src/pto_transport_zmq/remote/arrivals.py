"""Apply bulk messages in the order of their frames.

Small pieces of memory travel with their frame in the control channel, large ones in the bulk
channel. The channels have no common order, but a large piece must not be applied before the small
pieces of earlier frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Step = Callable[[], None]


class Arrivals:
    """Runs the steps of a frame when all earlier frames are complete; keeps steps of later frames.

    Each kept step holds a credit of the bulk channel, so the credits limit the kept memory.
    """

    def __init__(self) -> None:
        self._current = 1
        self._kept: deque[tuple[int, Step]] = deque()

    def add(self, frame: int, step: Step) -> None:
        """Run a step of a frame, or keep it. Callers add the steps in the order of their frames."""
        if frame <= self._current:
            step()
        else:
            self._kept.append((frame, step))

    def complete(self, frame: int) -> None:
        """Run the kept steps of the next frame: this frame and all earlier ones are complete."""
        self._current = frame + 1
        while self._kept and self._kept[0][0] <= self._current:
            self._kept.popleft()[1]()
