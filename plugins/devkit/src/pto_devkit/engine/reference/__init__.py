"""The reference engine, with one file for each concept. Use :class:`ReferenceEngine`."""

from pto_devkit.engine.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine"]
