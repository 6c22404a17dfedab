"""Simulate an a2a3 chip on the host's processors: its memory, cores and threads."""

from pto_backend_sim.simulator import plugin

__all__ = ["plugin"]
