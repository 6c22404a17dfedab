"""Read the file of a flight recorder, whose process may have crashed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.graphs.archive import refusing_damage
from pto_insight.traces.records import NATIVE, TRACKS, Event
from pto_insight.traces.trace import Trace, from_native

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
