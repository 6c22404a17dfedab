"""The simulated a2a3 device: memory, cores and threads of a chip, on the host's processors."""

from pto_backend_sim.simulator import plugin

__all__ = ["plugin"]
