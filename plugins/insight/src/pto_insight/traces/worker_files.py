"""Read and write the files of a Worker's trace."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pto_core.output_files import replacing, write_text
from pto_insight.traces.files import only_file
from pto_insight.traces.worker_data import WorkerTraceData
from pto_insight.traces.worker_flight import read_worker_flight
from pto_insight.traces.worker_page import worker_page
from pto_insight.traces.worker_parts import arrays_of, described, from_parts
from pto_insight.traces.worker_pftrace import worker_pftrace

_VERSION = 3


def write_worker_data(trace: WorkerTraceData, prefix: Path) -> list[Path]:
    """Write every file of a trace, and return the paths. Raises OSError."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    description = json.dumps({"worker_version": _VERSION, **described(trace)}).encode()
    path, timeline, page = (
        prefix.with_name(prefix.name + ending) for ending in (".trace.npz", ".pftrace", ".html")
    )
    with replacing(path) as file:
        arrays: dict[str, Any] = arrays_of(trace)
        np.savez(file, description=np.frombuffer(description, "u1"), **arrays)
    with replacing(timeline) as file:
        file.write(worker_pftrace(trace))
    write_text(page, worker_page(trace))
    return [path, timeline, page]


def read_worker_data(path: Path) -> WorkerTraceData | None:
    """Read the trace or flight recorder of a Worker; return None if the file is another one.

    ``path`` may be a folder with a single trace. Raises UsageError and OSError.
    """
    file = only_file(path) if path.is_dir() else path
    if file.suffix == ".flight":
        return read_worker_flight(file)
    try:
        with np.load(file, allow_pickle=False) as data:
            description = json.loads(bytes(data["description"]))
            is_ours = description.get("worker_version") == _VERSION
            return from_parts(description, data) if is_ours else None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
