"""The trace of a run: what each core, scheduler and thread did, and when."""

from pto_insight.traces.records import Event
from pto_insight.traces.trace import Trace, joined

__all__ = ["Event", "Trace", "joined"]
