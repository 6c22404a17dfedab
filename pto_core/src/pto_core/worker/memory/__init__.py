"""The memory that a Worker shares with its children, reserved before the first child starts."""

from pto_core.worker.memory.arena import (
    ArenaStatistics,
    Availability,
    Budget,
    SharedArena,
    available,
)
from pto_core.worker.memory.worker_memory import RING_COUNT, WorkerMemory

__all__ = [
    "RING_COUNT",
    "ArenaStatistics",
    "Availability",
    "Budget",
    "SharedArena",
    "WorkerMemory",
    "available",
]
