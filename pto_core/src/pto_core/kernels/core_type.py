"""The types of cores."""

from __future__ import annotations

from enum import IntEnum

from pto_core.errors import UsageError
from pto_core.errors.values import shown


class CoreType(IntEnum):
    """The type of a core: AIC for matrix operations, AIV for vector operations."""

    AIC = 0
    AIV = 1

    @classmethod
    def of(cls, core: object) -> CoreType:
        """Convert ``"aic"``, ``"aiv"`` or a CoreType to a CoreType; raises UsageError."""
        if isinstance(core, CoreType):
            return core
        if isinstance(core, str) and core.upper() in cls.__members__:
            return cls[core.upper()]
        raise UsageError(
            f"core {shown(core)} is not a core type; use 'aic' or 'aiv'",
            name="core",
            value=core,
            expected="aic or aiv",
        )
