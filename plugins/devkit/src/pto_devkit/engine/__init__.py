"""The engine of Workers for tests: the reference engine, which specifies it, and that in C++."""

from pto_core.worker.deadlock import Deadlock
from pto_devkit.engine.interface import (
    ChildConfiguration,
    Configuration,
    Engine,
    EnginePolicy,
    RingConfiguration,
    Snapshot,
)
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
