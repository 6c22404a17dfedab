"""Read and write the files of a trace, of a device or of a Worker.

A prefix such as ``out/step`` stands for the files ``out/step.trace.npz`` (all arrays),
``out/step.pftrace`` (for ui.perfetto.dev) and ``out/step.html`` (a page without network).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError
from pto_core.output_files import replacing, write_text
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import Details
from pto_insight.traces.flight import read_flight
from pto_insight.traces.page import page, worker_page
from pto_insight.traces.pftrace import pftrace, worker_pftrace
from pto_insight.traces.trace import Trace
from pto_insight.traces.worker_flight import read_worker_flight
from pto_insight.traces.worker_parts import (
    DETAIL_FIELDS,
    DEVICE_FIELDS,
    arrays_of,
    described,
    from_parts,
)

_OF_DEVICE = "trace 5"
_OF_WORKER = "trace of a Worker 5"
_EXPECTED = ("a trace", "pass a .trace.npz file that `pto run --trace --out DIR` wrote")
_ENDING = ".trace.npz"


def write_trace(trace: TraceData, prefix: Path) -> list[Path]:
    """Write every file of a device's trace, and return the paths. Raises OSError."""
    members = {name: getattr(trace, name) for name in DEVICE_FIELDS}
    statistics = None if trace.statistics is None else dict(trace.statistics)
    arrays: dict[str, Any] = {"records": trace.records, "tasks": trace.tasks}
    texts = None
    if trace.details is not None:
        arrays |= {"submits": trace.details.submits, "arguments": trace.details.arguments}
        texts = {name: getattr(trace.details, name) for name in DETAIL_FIELDS}
    content = {**members, "statistics": statistics, "details": texts}
    return _write(
        prefix, Archive(_OF_DEVICE, content, arrays), lambda: pftrace(trace), lambda: page(trace)
    )


def write_worker_data(trace: WorkerTraceData, prefix: Path) -> list[Path]:
    """Write every file of a Worker's trace, and return the paths. Raises OSError."""
    archive = Archive(_OF_WORKER, described(trace), arrays_of(trace))
    return _write(prefix, archive, lambda: worker_pftrace(trace), lambda: worker_page(trace))


def _write(
    prefix: Path, archive: Archive, timeline: Callable[[], bytes], shown: Callable[[], str]
) -> list[Path]:
    """Write the data before the other files are made, so that they are never lost with these."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    paths = [_with_ending(prefix, ending) for ending in (_ENDING, ".pftrace", ".html")]
    write_archive(paths[0], archive)
    with replacing(paths[1]) as file:
        file.write(timeline())
    write_text(paths[2], shown())
    return paths


def write_statistics(statistics: Mapping[str, int], prefix: Path) -> Path:
    """Write the counters of a run as JSON, and return the path. Raises OSError."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    path = _with_ending(prefix, ".stats.json")
    write_text(path, json.dumps(dict(statistics), indent=2) + "\n")
    return path


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the ``.trace.npz`` or ``.flight`` file of a device, or the only trace in a folder.

    Raises UsageError if there is none or it is not a trace, and OSError.
    """
    file = _one_file(path)
    if file.suffix == ".flight":
        return read_flight(file)
    return _trace_of(read_archive(file, *_EXPECTED), file)


def read_any_data(path: str | os.PathLike[str]) -> WorkerTraceData | Trace:
    """Read the trace or flight recorder of a Worker or a device, or the only trace in a folder.

    Raises UsageError and OSError.
    """
    file = _one_file(path)
    if file.suffix == ".flight":
        return read_worker_flight(file) or read_flight(file)
    archive = read_archive(file, *_EXPECTED)
    if archive.kind == _OF_WORKER:
        return from_parts(archive.content, archive.arrays)
    return _trace_of(archive, file)


def _trace_of(archive: Archive, file: Path) -> Trace:
    """Return the trace of a device; raise UsageError if ``file`` has another one."""
    with refusing_damage(file, *_EXPECTED):
        if archive.kind != _OF_DEVICE:
            raise ValueError(f"it is of the kind {archive.kind!r}")
        arrays, members = archive.arrays, dict(archive.content)
        texts = members.pop("details")
        if texts is not None:
            named = {name: tuple(texts[name]) for name in DETAIL_FIELDS}
            members["details"] = Details(arrays["submits"], arrays["arguments"], **named)
        members["kernels"] = tuple(members["kernels"])
        return Trace(records=arrays["records"], tasks=arrays["tasks"], **members)


def _one_file(path: str | os.PathLike[str]) -> Path:
    """Return a path, or the only file of a trace if it is a folder; raise UsageError."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    files = sorted(folder.glob("*" + _ENDING))
    if len(files) == 1:
        return files[0]
    names = ", ".join(file.name for file in files) or "none"
    raise UsageError(
        f"{folder} contains {len(files)} traces ({names}); pass the path of one *.trace.npz file",
        name="trace",
        value=str(folder),
    )


def _with_ending(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)
