"""Read and write the files of a trace, of a device or of a Worker.

A prefix such as ``out/step`` stands for the files ``out/step.trace.npz`` (all arrays),
``out/step.pftrace`` (for ui.perfetto.dev) and ``out/step.html`` (a page without network).

The file of a flight recorder (``*.flight``) has the last records of a run that failed or crashed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.errors import UsageError
from pto_core.output_files import numbered_runs, replacing, write_text
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import Details
from pto_insight.traces.page import page, worker_page
from pto_insight.traces.pftrace import pftrace, worker_pftrace
from pto_insight.traces.records import NATIVE, TRACKS, Event
from pto_insight.traces.trace import Trace, from_native
from pto_insight.traces.worker_parts import (
    DETAIL_FIELDS,
    DEVICE_FIELDS,
    Recorded,
    arrays_of,
    described,
    from_driver,
    from_parts,
    merged,
)
from pto_insight.traces.worker_records import DriverTrace

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
    """Write the data first, so that an error in the other files cannot lose them."""
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

    Of a folder with several runs, the newest one with a trace is read. Raises UsageError if there
    is none or it is not a trace, and OSError.
    """
    file = _one_file(path)
    if file.suffix == ".flight":
        return read_flight(file)
    return _trace_of(read_archive(file, *_EXPECTED), file)


def read_any_data(path: str | os.PathLike[str]) -> WorkerTraceData | Trace:
    """Read the trace or flight recorder of a Worker or a device, or the only trace in a folder.

    Of a folder with several runs, the newest one with a trace is read. Raises UsageError and
    OSError.
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
    """Return a path, or the only trace in a folder or its newest traced run; raise UsageError."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    files = sorted(folder.glob("*" + _ENDING))
    for run in reversed(numbered_runs(folder)):
        if traces := sorted(run.glob("*" + _ENDING)):
            files += traces
            break
    if len(files) == 1:
        return files[0]
    names = ", ".join(str(file.relative_to(folder)) for file in files) or "none"
    raise UsageError(
        f"{folder} contains {len(files)} traces ({names}); pass the path of one *.trace.npz file",
        name="trace",
        value=str(folder),
    )


def _with_ending(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


# ---- the file of a flight recorder, whose process may have crashed ----

PAIR = [("ticks", "<u8"), ("ns", "<u8")]
_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("tracks", "<u4"),
        ("blocks", "<u4"),
        ("ring_records", "<u8"),
        ("rings_at", "<u8"),
        ("records_at", "<u8"),
        ("names_bytes", "<u8"),
        ("groups", "<u4"),
        ("clock", "<u4"),
        ("rings", "<u8"),
        ("first", PAIR),
        ("last", PAIR),
        ("workers", "<u8"),
    ]
)
"""``pto::core::TraceFile``."""
RING = np.dtype([("written", "<u8"), ("attempts", "<u8"), ("rest", "<u8", 14)])
"""``pto_trace_ring``."""
EXPECTED = ("the file of a flight recorder", "pass a *.flight file that a failed run left")
_LAST_NS = 2.0**62
_BLOCKS_MAX = 2**15 // 3  # a task has the number of its core, of three in each block, in 16 bits


def read_flight(path: Path, backend: str = "", runtime: str = "") -> Trace:
    """Return the last records of each track. Raises UsageError for another file, and OSError."""
    has_header = path.stat().st_size >= _HEADER.itemsize
    content = np.memmap(path, "u1", mode="r") if has_header else np.zeros(_HEADER.itemsize, "u1")
    header = content[: _HEADER.itemsize].view(_HEADER)[0]
    if (
        header["magic"] != b"PTOTRACE"
        or header["tracks"] != TRACKS
        or len(content) < header["records_at"] + TRACKS * header["ring_records"] * NATIVE.itemsize
    ):
        with refusing_damage(path, *EXPECTED):
            raise ValueError("it has another header")
    begin = _HEADER.itemsize
    names = {}
    with refusing_damage(path, *EXPECTED):
        text = content[begin : begin + int(header["names_bytes"])].tobytes().decode()
        for line in text.splitlines():
            number, _, name = line.partition(" ")
            names[int(number)] = name
        records = _records(content, header)
        for func_id in _kernels(records) - names.keys():
            names[func_id] = f"kernel {func_id}"
        first, last = (tuple(map(int, header[name])) for name in ("first", "last"))
        clock, workers, blocks = (int(header[name]) for name in ("clock", "workers", "blocks"))
        if blocks > _BLOCKS_MAX:
            raise ValueError(f"it has {blocks} blocks")
        native = (records.tobytes(), [0] * TRACKS, clock, first, last, workers)
        trace = from_native((native, names, blocks), backend, runtime, None)
        require_times(trace.records, trace.epoch_ns)
        return trace


def _kernels(records: NDArray[np.void]) -> set[int]:
    """Return the kernels that started; the file has no names of those that Python registered."""
    values = records["b"][records["event"] == Event.START] >> np.uint64(32)
    return set(values.tolist())


def _records(content: NDArray[np.uint8], header: np.void) -> NDArray[np.void]:
    size = int(header["ring_records"])
    rings_at, records_at = int(header["rings_at"]), int(header["records_at"])
    found = []
    for track in range(TRACKS):
        records = records_at + track * size * NATIVE.itemsize
        found.append(last_records(content, rings_at + track * RING.itemsize, records, size))
    joined: NDArray[np.void] = np.concatenate(found)
    return joined


def last_records(
    content: NDArray[np.uint8], ring_at: int, records_at: int, size: int
) -> NDArray[np.void]:
    """Return the records of a ring with space for ``size``, the oldest first."""
    ring = content[ring_at : ring_at + RING.itemsize].view(RING)[0]
    end, count = int(ring["written"]), min(int(ring["written"]), size)
    # The record that replaces the oldest one may be incomplete.
    if count == size and ring["attempts"] > ring["written"]:
        count -= 1
    records = content[records_at : records_at + size * NATIVE.itemsize].view(NATIVE)
    kept: NDArray[np.void] = records[np.arange(end - count, end) % size]
    if not np.isin(kept["event"], list(Event)).all():
        raise ValueError("a record has an unknown event")
    return kept


def require_times(records: NDArray[Any], epoch_ns: int) -> None:
    """Raise ValueError if a time of a record is negative or far in the future."""
    for name in ("start", "end"):
        times = records[name].astype("f8") + epoch_ns
        if ((times < 0) | (times > _LAST_NS)).any():
            raise ValueError("a record has an impossible time")


# ---- the file of the flight recorder of a Worker whose process has crashed ----

_HEAD = np.dtype(
    [
        ("magic", "S8"),
        ("children", "<u4"),
        ("clock", "<u4"),
        ("stride", "<u8"),
        ("ring_records", "<u8"),
        ("first", PAIR),
        ("last", PAIR),
        ("run", [("first_task", "<i8"), ("clock", "<u8")]),
        ("text_bytes", "<u8"),
    ]
)
"""``pto::worker::FlightHead``."""
_HEAD_BYTES = 1 << 16
_DRIVER_TRACKS = 2


def read_worker_flight(path: Path) -> WorkerTraceData | None:
    """Return the last records of each track; None for another file. Raises OSError."""
    if path.stat().st_size < _HEAD_BYTES:
        return None
    content = np.memmap(path, "u1", mode="r")
    head = content[: _HEAD.itemsize].view(_HEAD)[0]
    rings = _DRIVER_TRACKS + int(head["children"])
    if head["magic"] != b"PTOWORKR" or len(content) < _HEAD_BYTES + rings * int(head["stride"]):
        return None
    with refusing_damage(path, *EXPECTED):
        text = content[_HEAD.itemsize : _HEAD.itemsize + int(head["text_bytes"])].tobytes().decode()
        description, *names = text.split("\0")[:-1]
        callables = [name or f"function {number}" for number, name in enumerate(names)]
        worker = json.loads(description)
        records = _worker_records(content, rings, int(head["stride"]), int(head["ring_records"]))
        first, last, run = (_pair(head[name]) for name in ("first", "last", "run"))
        native = DriverTrace(
            records, [0] * rings, int(head["clock"]), first, last, [run], callables, b""
        )
        recorded = Recorded(native)
        found = from_driver(recorded, worker["path"], worker["children"], worker["pid"], _no_place)
        lacks = f"{worker['path']}: its process crashed; source lines and ranges are not here"
        require_times(found.records, found.epoch_ns)
        return merged(found, (), [lacks])


def _worker_records(content: NDArray[np.uint8], rings: int, stride: int, size: int) -> bytes:
    """Return the records of all rings; ``size``: the number of records in a full one."""
    begins = range(_HEAD_BYTES, _HEAD_BYTES + rings * stride, stride)
    return b"".join(last_records(content, at, at + RING.itemsize, size).tobytes() for at in begins)


def _pair(numbers: np.void) -> tuple[int, int]:
    first, second = numbers.item()
    return first, second


def _no_place(code: int, instruction: int) -> tuple[None, None]:
    return None, None
