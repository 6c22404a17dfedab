"""Run cases on an Ascend A2 or A3 card through CANN. This version runs them on its fake driver."""

from pto_backend_a2a3.backend import plugin

__all__ = ["plugin"]
