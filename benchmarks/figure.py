"""One measured figure, and functions that repeat and summarise figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Sample = TypeVar("Sample")


@dataclass
class Figure:
    """Samples of one quantity, in ``unit``, with a budget and a peer for comparison.

    ``budget`` is the upper limit of the median (the lower limit if ``at_least``). ``peer`` contains
    the samples of a floor or another system in the same run, and ``peer_name`` its name.
    ``not_measured`` states why there are no samples.
    """

    name: str
    unit: str
    samples: list[float] = field(default_factory=list)
    budget: float | None = None
    at_least: bool = False
    peer_name: str = ""
    peer: list[float] = field(default_factory=list)
    note: str = ""
    not_measured: str = ""

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """The distance between the quartiles as a share of the median."""
        if len(self.samples) < 4 or not self.median:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median

    @property
    def ratio(self) -> float | None:
        """The median divided by the peer's median."""
        if not self.peer or not self.samples:
            return None
        return self.median / statistics.median(self.peer)

    @property
    def met(self) -> bool | None:
        """Whether the median is within the budget; None if there is no budget."""
        if self.budget is None or not self.samples:
            return None
        return self.median >= self.budget if self.at_least else self.median <= self.budget

    def as_json(self) -> dict[str, Any]:
        """Return all members as values that JSON can represent."""
        measured = bool(self.samples)
        return {
            "name": self.name,
            "unit": self.unit,
            "min": min(self.samples) if measured else None,
            "median": self.median if measured else None,
            "spread": self.spread if measured else None,
            "samples": self.samples,
            "budget": self.budget,
            "budget_is": "at least" if self.at_least else "at most",
            "met": self.met,
            "peer": self.peer_name,
            "peer_median": statistics.median(self.peer) if self.peer else None,
            "ratio": self.ratio,
            "note": self.note,
            "not_measured": self.not_measured,
        }


def interleaved(measures: dict[str, Callable[[], Sample]], repeats: int) -> dict[str, list[Sample]]:
    """Sample several functions alternately, so that a drift of the machine affects all of them.

    Each function is called once before the samples, to warm up.
    """
    for measure in measures.values():
        measure()
    taken: dict[str, list[Sample]] = {name: [] for name in measures}
    for _ in range(repeats):
        for name, measure in measures.items():
            taken[name].append(measure())
    return taken


def ratios(
    above: Callable[[], float], below: Callable[[], float], repeats: int, turns: int
) -> list[float]:
    """Return samples of the ratio of two measures: each divides two medians of ``turns`` values."""
    taken = interleaved({"above": above, "below": below}, repeats * turns)
    medians = {
        name: [statistics.median(values[i : i + turns]) for i in range(0, len(values), turns)]
        for name, values in taken.items()
    }
    return [a / b for a, b in zip(medians["above"], medians["below"], strict=True)]


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which ``share`` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def wall_s(call: Callable[[], Any]) -> float:
    """Return the wall time of one call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
