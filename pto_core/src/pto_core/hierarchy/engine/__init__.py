"""The engine of level 3 and up: its interface, and the reference that says what it does."""

from pto_core.hierarchy.engine.configuration import (
    ChildConfiguration,
    Configuration,
    RingConfiguration,
)
from pto_core.hierarchy.engine.interface import Deadlock, Engine, least_loaded
from pto_core.hierarchy.engine.native import NativeEngine
from pto_core.hierarchy.engine.reference import ReferenceEngine

__all__ = [
    "ChildConfiguration",
    "Configuration",
    "Deadlock",
    "Engine",
    "NativeEngine",
    "ReferenceEngine",
    "RingConfiguration",
    "least_loaded",
]
