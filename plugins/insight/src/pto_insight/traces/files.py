"""Read and write the files of a trace.

A prefix such as ``out/step`` stands for the files ``out/step.trace.npz`` (all arrays),
``out/step.pftrace`` (for ui.perfetto.dev) and ``out/step.html`` (a page without network).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError
from pto_core.output_files import replacing, write_text
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive
from pto_insight.traces.details import Details
from pto_insight.traces.flight import read_flight
from pto_insight.traces.page import page
from pto_insight.traces.pftrace import pftrace
from pto_insight.traces.trace import Trace

_KIND = "trace 5"
_EXPECTED = ("a trace", "pass a .trace.npz file that `pto run --trace --out DIR` wrote")
_ENDING = ".trace.npz"
_TEXTS = ("places", "texts", "buffers")
_MEMBERS = ("kernels", "lost", "blocks", "unit", "epoch_ns", "threads", "backend", "runtime")


def write_trace(trace: Trace, prefix: Path) -> list[Path]:
    """Write every file of a trace, and return the paths. Raises OSError."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    path = _with_ending(prefix, _ENDING)
    members = {name: getattr(trace, name) for name in _MEMBERS}
    statistics = None if trace.statistics is None else dict(trace.statistics)
    arrays: dict[str, Any] = {"records": trace.records, "tasks": trace.tasks}
    texts = None
    if trace.details is not None:
        arrays |= {"submits": trace.details.submits, "arguments": trace.details.arguments}
        texts = {name: getattr(trace.details, name) for name in _TEXTS}
    content = {**members, "statistics": statistics, "details": texts}
    write_archive(path, Archive(_KIND, content, arrays))
    timeline = _with_ending(prefix, ".pftrace")
    with replacing(timeline) as file:
        file.write(pftrace(trace))
    shown = _with_ending(prefix, ".html")
    write_text(shown, page(trace))
    return [path, timeline, shown]


def write_statistics(statistics: Mapping[str, int], prefix: Path) -> Path:
    """Write the counters of a run as JSON, and return the path. Raises OSError."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    path = _with_ending(prefix, ".stats.json")
    write_text(path, json.dumps(dict(statistics), indent=2) + "\n")
    return path


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the ``.trace.npz`` file of a trace, or the only one in a folder, or a ``.flight`` file.

    Raises UsageError if there is none or it is not a trace, and OSError.
    """
    file = one_file(path)
    return read_flight(file) if file.suffix == ".flight" else trace_of(trace_archive(file), file)


def trace_archive(file: Path) -> Archive:
    """Read a ``.trace.npz`` file, of a device or of a Worker. Raises UsageError and OSError."""
    return read_archive(file, *_EXPECTED)


def trace_of(archive: Archive, file: Path) -> Trace:
    """Return the trace of a device; raise UsageError if ``file`` has another one."""
    with refusing_damage(file, *_EXPECTED):
        if archive.kind != _KIND:
            raise ValueError(f"it is of the kind {archive.kind!r}")
        arrays, members = archive.arrays, dict(archive.content)
        texts = members.pop("details")
        if texts is not None:
            named = {name: tuple(texts[name]) for name in _TEXTS}
            members["details"] = Details(arrays["submits"], arrays["arguments"], **named)
        members["kernels"] = tuple(members["kernels"])
        return Trace(records=arrays["records"], tasks=arrays["tasks"], **members)


def one_file(path: str | os.PathLike[str]) -> Path:
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
