"""The engines of level 3 and up. They implement :class:`pto_core.interfaces.Scheduler`."""

from pto_core.hierarchy.engine.configuration import (
    ChildConfiguration,
    Configuration,
    RingConfiguration,
)
from pto_core.hierarchy.engine.deadlock import Deadlock
from pto_core.hierarchy.engine.native import NativeEngine
from pto_core.hierarchy.engine.policy import least_loaded
from pto_core.hierarchy.engine.reference import ReferenceEngine

__all__ = [
    "ChildConfiguration",
    "Configuration",
    "Deadlock",
    "NativeEngine",
    "ReferenceEngine",
    "RingConfiguration",
    "least_loaded",
]
