"""Find CANN, and check an Ascend A2 or A3 card. This version runs no cases on a card."""

from pto_backend_a2a3.backend import plugin

__all__ = ["plugin"]
