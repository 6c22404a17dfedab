"""The runtime variant that finds dependencies by itself and streams graphs through rings."""

from pto_runtime_pto2.variant import plugin

__all__ = ["plugin"]
