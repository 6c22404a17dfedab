"""The number of samples and the sizes of a measurement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """The effort of a run: ``repeats`` samples of each figure, and sizes divided by ``divisor``.

    Each budget applies to the median of at least five samples at full size.
    """

    repeats: int = 7
    divisor: int = 1

    def size(self, full: int) -> int:
        """Return ``full`` divided by the divisor, at least one."""
        return max(1, full // self.divisor)

    def __str__(self) -> str:
        return f"{self.repeats} samples" + (
            f", sizes divided by {self.divisor}: too small to judge" if self.divisor > 1 else ""
        )
