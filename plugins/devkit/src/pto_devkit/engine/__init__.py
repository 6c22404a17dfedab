"""The reference engine of Workers, which specifies the native one, and both for tests."""

from pto_devkit.engine.configuration import (
    ChildConfiguration,
    Configuration,
    RingConfiguration,
)
from pto_devkit.engine.deadlock import Deadlock
from pto_devkit.engine.interface import Engine, EnginePolicy, Snapshot
from pto_devkit.engine.native import NativeEngine
from pto_devkit.engine.reference import ReferenceEngine

__all__ = [
    "ChildConfiguration",
    "Configuration",
    "Deadlock",
    "Engine",
    "EnginePolicy",
    "NativeEngine",
    "ReferenceEngine",
    "RingConfiguration",
    "Snapshot",
]
