"""Defer signals that end the program until an operation that must not be interrupted ends."""

from pto_core._interrupts import Interrupts

__all__ = ["Interrupts"]
