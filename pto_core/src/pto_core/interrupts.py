"""Defer signals that end the program while an operation must not stop half-way."""

from pto_core._interrupts import Interrupts

__all__ = ["Interrupts"]
