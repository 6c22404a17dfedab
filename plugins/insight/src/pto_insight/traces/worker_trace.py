"""The class WorkerTrace, which :meth:`pto_core.Worker.trace` fills."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.files import read_any_data, write_worker_data
from pto_insight.traces.summary import worker_summary
from pto_insight.traces.timeline import worker_timeline
from pto_insight.traces.trace import Trace


class WorkerTrace(WorkerTraceData):
    """The trace of a Worker; :class:`WorkerTraceData` describes its content.

    It is empty until the block of :meth:`pto_core.Worker.trace` has ended.
    """

    devices: Mapping[str, Trace]

    @staticmethod
    def of(data: WorkerTraceData) -> WorkerTrace:
        """Return a trace with the content of ``data``."""
        return WorkerTrace(**vars(data))

    def fill(self, data: WorkerTraceData) -> None:
        """Take over the content of ``data``, at the end of the block."""
        vars(self).update(vars(data))

    def table(self) -> str:
        """Return the summary of each Worker and each device as text."""
        return worker_summary(self)

    def _repr_html_(self) -> str:
        return worker_timeline(self)

    def write(self, prefix: str | os.PathLike[str]) -> list[Path]:
        """Write ``PREFIX.trace.npz``, ``PREFIX.pftrace`` and ``PREFIX.html``; return the paths.

        Raises OSError.
        """
        return write_worker_data(self, Path(prefix))

    def __repr__(self) -> str:
        lost = f", {self.lost_total} lost" if self.lost_total else ""
        return (
            f"<WorkerTrace of {self.paths[0]}: {self.task_count} tasks, {len(self.devices)} "
            f"devices, {len(self.ranges)} ranges{lost}>"
        )


def read_any_trace(path: str | os.PathLike[str]) -> Trace | WorkerTrace:
    """Read the ``.trace.npz`` file of a device or a Worker, or the only one in a folder.

    Raises UsageError if there is none or it is not a trace, and OSError.
    """
    data = read_any_data(path)
    return data if isinstance(data, Trace) else WorkerTrace.of(data)
