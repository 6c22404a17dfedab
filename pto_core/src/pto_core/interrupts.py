"""Signals that end the program, noted while something must not be left half done."""

from pto_core._interrupts import Interrupts

__all__ = ["Interrupts"]
