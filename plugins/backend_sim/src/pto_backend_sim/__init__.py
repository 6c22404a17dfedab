"""Simulate an a2a3 device on the host's processors: memory, cores and threads of a chip."""

from pto_backend_sim.simulator import plugin

__all__ = ["plugin"]
