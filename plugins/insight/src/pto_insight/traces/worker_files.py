"""Read and write the files of a Worker's trace."""

from __future__ import annotations

import os
from pathlib import Path

from pto_core.output_files import replacing, write_text
from pto_insight.graphs.archive import Archive, write_archive
from pto_insight.traces.files import one_file, read_trace, trace_archive, trace_of
from pto_insight.traces.trace import Trace
from pto_insight.traces.worker_data import WorkerTraceData
from pto_insight.traces.worker_flight import read_worker_flight
from pto_insight.traces.worker_page import worker_page
from pto_insight.traces.worker_parts import arrays_of, described, from_parts
from pto_insight.traces.worker_pftrace import worker_pftrace

_KIND = "trace of a Worker 4"


def write_worker_data(trace: WorkerTraceData, prefix: Path) -> list[Path]:
    """Write every file of a trace, and return the paths. Raises OSError."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    path, timeline, page = (
        prefix.with_name(prefix.name + ending) for ending in (".trace.npz", ".pftrace", ".html")
    )
    write_archive(path, Archive(_KIND, described(trace), arrays_of(trace)))
    with replacing(timeline) as file:
        file.write(worker_pftrace(trace))
    write_text(page, worker_page(trace))
    return [path, timeline, page]


def read_any_data(path: str | os.PathLike[str]) -> WorkerTraceData | Trace:
    """Read the trace or flight recorder of a Worker or a device, or the only trace in a folder.

    Raises UsageError and OSError.
    """
    file = one_file(path)
    if file.suffix == ".flight":
        return read_worker_flight(file) or read_trace(file)
    archive = trace_archive(file)
    if archive.kind == _KIND:
        return from_parts(archive.content, archive.arrays)
    return trace_of(archive, file)
