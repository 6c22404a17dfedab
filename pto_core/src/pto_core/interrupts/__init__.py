"""Signals that end us, noted while something must not be left half done."""

from pto_core.interrupts.interrupts import Interrupts

__all__ = ["Interrupts"]
