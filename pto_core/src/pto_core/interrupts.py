"""Defer signals that end the program during operations that must not be interrupted half-way."""

from pto_core._interrupts import Interrupts

__all__ = ["Interrupts"]
