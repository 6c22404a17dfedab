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
    """Runs the steps of a frame once all earlier frames are complete; keeps steps of later ones.

    The credits of the bulk channel limit the memory: a step that waits holds its credit.
    """

    def __init__(self) -> None:
        self._current = 1
        self._kept: deque[tuple[int, Step]] = deque()

    def add(self, frame: int, step: Step) -> None:
        """Run a step of a frame, or keep it. Steps of earlier frames are added first."""
        if frame <= self._current:
            step()
        else:
            self._kept.append((frame, step))

    def complete(self, frame: int) -> None:
        """Run the steps of the next frame, because this one and all before it are complete."""
        self._current = frame + 1
        while self._kept and self._kept[0][0] <= self._current:
            self._kept.popleft()[1]()
