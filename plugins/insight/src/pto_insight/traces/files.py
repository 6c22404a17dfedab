"""Read and write the files of a trace.

A prefix such as ``out/step`` stands for the files ``out/step.trace.npz`` (all arrays),
``out/step.pftrace`` (for ui.perfetto.dev) and ``out/step.html`` (a page without network).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pto_core.errors import UsageError
from pto_core.output_files import replacing, write_text
from pto_insight.traces.details import Details
from pto_insight.traces.flight import read_flight
from pto_insight.traces.page import page
from pto_insight.traces.pftrace import pftrace
from pto_insight.traces.records import RECORD, TASK
from pto_insight.traces.trace import Trace

_VERSION = 4
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
    description = json.dumps(
        {"version": _VERSION, **members, "statistics": statistics, "details": texts}
    )
    with replacing(path) as file:
        np.savez(file, description=np.frombuffer(description.encode(), "u1"), **arrays)
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


def read_trace(path: Path) -> Trace:
    """Read the ``.trace.npz`` file of a trace, or the only one in a folder, or a ``.flight`` file.

    Raises UsageError if there is none or it is not a trace, and OSError.
    """
    file = only_file(path) if path.is_dir() else path
    if file.suffix == ".flight":
        return read_flight(file)
    try:
        with np.load(file, allow_pickle=False) as data:
            records, tasks = data["records"], data["tasks"]
            description = json.loads(bytes(data["description"]))
            texts = description.pop("details", None)
            if texts is not None:
                named = {name: tuple(texts[name]) for name in _TEXTS}
                description["details"] = Details(data["submits"], data["arguments"], **named)
        if description.pop("version") != _VERSION or (records.dtype, tasks.dtype) != (RECORD, TASK):
            raise ValueError("another version")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{file} is not a trace of this version; pass a .trace.npz file that "
            "`pto run --trace --out DIR` wrote",
            name="trace",
            value=str(file),
        ) from error
    description["kernels"] = tuple(description["kernels"])
    return Trace(records=records, tasks=tasks, **description)


def only_file(folder: Path) -> Path:
    """Return the only file of a trace in a folder; raise UsageError."""
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
