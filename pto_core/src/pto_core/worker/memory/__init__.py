"""The memory that a Worker shares with its children, reserved before the first child starts."""

from pto_core.worker.memory.arena import (
    ArenaStatistics,
    Availability,
    Budget,
    SharedArena,
    available,
)

__all__ = ["ArenaStatistics", "Availability", "Budget", "SharedArena", "available"]
