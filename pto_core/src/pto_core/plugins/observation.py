"""The record of a Python program that ``pto graph``, ``check``, ``why`` or ``trace`` runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_insight.graphs import TaskGraph


class Observation:
    """The graphs of the runs of this process, or the traces of its Workers.

    ``trace_level``: the level at which each Worker is traced; 0: no Worker is traced, and each run
    adds its path and its graph to ``graphs``.
    """

    def __init__(self, trace_level: int = 0) -> None:
        self.trace_level = trace_level
        self.graphs: list[tuple[str, TaskGraph]] = []
        self.tracings: list[Any] = []  # of WorkerTracing
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that began the observation, and not a fork of it."""
        return os.getpid() == self._pid


current: Observation | None = None
"""None in a program that no command observes; begin() sets it. A run tests it without a call."""


def begin(observation: Observation | None) -> None:
    """Observe this process from now on; None ends the observation."""
    global current
    current = observation


def of_graphs() -> Observation | None:
    """Return the observation that needs the graphs of runs, or None."""
    seen = current
    return seen if seen is not None and not seen.trace_level and seen.is_here else None


def of_traces() -> Observation | None:
    """Return the observation that needs the traces of Workers, or None."""
    seen = current
    return seen if seen is not None and seen.trace_level and seen.is_here else None
