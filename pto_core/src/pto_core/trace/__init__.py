"""The trace of a run: what each core, scheduler and thread did, and when."""

from pto_core.trace.records import Event
from pto_core.trace.trace import Trace, joined

__all__ = ["Event", "Trace", "joined"]
