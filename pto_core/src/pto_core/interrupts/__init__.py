"""Signals that end us, noted while something must not be left half done."""

from pto_core.interrupts.handlers import is_raised_by_handler
from pto_core.interrupts.interrupts import Interrupts

__all__ = ["Interrupts", "is_raised_by_handler"]
