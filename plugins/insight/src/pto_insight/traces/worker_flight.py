"""Read the file of the flight recorder of a Worker whose process has crashed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pto_insight.graphs.archive import refusing_damage
from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.flight import EXPECTED, PAIR, RING, last_records, require_times
from pto_insight.traces.worker_parts import Recorded, from_driver, merged
from pto_insight.traces.worker_records import DriverTrace

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
"""``pto::hierarchy::FlightHead``."""
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
        records = _records(content, rings, int(head["stride"]), int(head["ring_records"]))
        first, last, run = (_pair(head[name]) for name in ("first", "last", "run"))
        native = DriverTrace(
            records, [0] * rings, int(head["clock"]), first, last, [run], callables, b""
        )
        recorded = Recorded(native)
        found = from_driver(recorded, worker["path"], worker["children"], worker["pid"], _no_place)
        lacks = f"{worker['path']}: its process crashed; source lines and ranges are not here"
        require_times(found.records, found.epoch_ns)
        return merged(found, (), [lacks])


def _records(content: NDArray[np.uint8], rings: int, stride: int, size: int) -> bytes:
    """Return the records of all rings; ``size``: the number of records in a full one."""
    begins = range(_HEAD_BYTES, _HEAD_BYTES + rings * stride, stride)
    return b"".join(last_records(content, at, at + RING.itemsize, size).tobytes() for at in begins)


def _pair(numbers: np.void) -> tuple[int, int]:
    first, second = numbers.item()
    return first, second


def _no_place(code: int, instruction: int) -> tuple[None, None]:
    return None, None
