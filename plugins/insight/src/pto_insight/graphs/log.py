"""The access log of a run: the memory that each task names, in the order of submits."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pto_core.kernels import Direction
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive

Rows = npt.NDArray[Any]

# The layouts of pto/abi/access_log.h and pto_tensor_data. `file` is a number here: an index in
# AccessLog.files plus 1, or 0 if the file is unknown.
TASK = np.dtype(
    [
        ("id", "i8"),
        ("file", "u8"),
        ("line", "i4"),
        ("func_id", "i4"),
        ("heap", "u8"),
        ("accesses", "u4"),
        ("core_type", "i4"),
        ("blocks", "u4"),
        ("traits", "u4"),
    ]
)
ACCESS = np.dtype(
    [
        ("address", "u8"),
        ("size", "u8"),
        ("raw_shapes", "u8", 5),
        ("shapes", "u8", 5),
        ("offsets", "u8", 5),
        ("start_offset", "u8"),
        ("ndims", "u4"),
        ("dtype", "u4"),
        ("version", "i4"),
        ("order", "u1", 5),
        ("is_pipe", "u1"),
        ("dropped", "u1"),
        ("tag", "u1"),
        ("parameter", "u1"),
        ("limits", "u1"),
        ("reserved", "u1", 2),
        ("owner", "i8"),
    ]
)
EVENT = np.dtype(
    [
        ("kind", "u4"),
        ("line", "i4"),
        ("file", "u8"),
        ("tasks", "i8"),
        ("first", "i8"),
        ("second", "i8"),
    ]
)
# The layout of pto_measured_range, and the values of its `kind`.
MEASURED = np.dtype(
    [("task", "i8"), ("begin", "u8"), ("end", "u8"), ("kind", "u4"), ("core", "u4")]
)
# Bits of `traits` and values of `limits`.
OF_2026_08, MANUAL, HOST = 1, 2, 4
HOST_CALLS = ("get_tensor_data", "set_tensor_data")
"""The names of reads and of writes of the orchestration."""
LIMITED_TO_OWNER, NO_EDGE = 1, 2
_LANE = 7
CALL, READ, WRITE, BUFFER, PAGES, ALLOCATED, COPIED_IN, COPIED_OUT = range(8)
_LAYOUTS = {"tasks": TASK, "accesses": ACCESS, "events": EVENT, "measured": MEASURED}
_KIND = "access log 5"


class Buffer(NamedTuple):
    """Memory outside of the heap rings: an argument of the run, or ``rt.empty``."""

    name: str
    address: int
    bytes: int
    is_copied_in: bool
    is_copied_back: bool


class HostArray(NamedTuple):
    """An argument of the run in host memory, which the orchestration copies itself."""

    name: str
    address: int
    bytes: int


@dataclass(frozen=True, eq=False)
class AccessLog:
    """The accesses of a run as arrays: one row for each submit, tensor and other call.

    ``kernels``: names by func_id. ``is_full``: whether ``hazards`` was ``"full"``. ``blocks``: the
    number of core blocks; 0 for a Worker, whose tasks have the number of members of their group in
    the place of their blocks. ``has_accesses``: whether the runtime finds edges from accesses;
    without them the log has tasks and explicit edges only. ``has_ring_ids``: whether a task id
    contains the number of a ring. ``is_measured``: whether kernels were built to report their
    accesses, which are the rows of ``measured``: the calls, the bytes that each read before it
    wrote them, the bytes that it wrote, and the device buffers of its arguments; and the buffers
    and copies of the runtime. For a kernel that is a binary, its reads and writes are whole pages.
    ``host_arrays``: the arguments that the orchestration copies. ``written``: the bytes of each
    WRITE row of ``measured``, one after another, if the run kept them; they are not saved.
    """

    tasks: Rows
    accesses: Rows
    events: Rows
    files: tuple[str, ...]
    kernels: Mapping[int, str]
    buffers: tuple[Buffer, ...] = ()
    is_full: bool = True
    blocks: int = 24
    has_ring_ids: bool = True
    has_accesses: bool = True
    is_measured: bool = False
    measured: Rows = field(default_factory=lambda: np.zeros(0, MEASURED))
    host_arrays: tuple[HostArray, ...] = ()
    written: bytes = field(default=b"", repr=False)

    @cached_property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernel of each task; all of them for a task that runs several.

        A task that runs no kernel is called ``alloc`` if it has only outputs, and else ``dummy``.
        An access of the orchestration has the name of its call.
        """
        names, begin = [], 0
        for row in self.tasks:
            tags, begin = self.accesses["tag"][begin : row["accesses"]], int(row["accesses"])
            func_ids = self._lanes.get(int(row["id"]), [int(row["func_id"])])
            name = "+".join(self.kernels.get(id_) or f"function {id_}" for id_ in func_ids)
            if row["core_type"] < 0 and row["traits"] & OF_2026_08:
                name = "alloc" if len(tags) and (tags == Direction.OUT).all() else "dummy"
            if row["traits"] & HOST:
                name = HOST_CALLS[int(tags[0] != Direction.IN)]
            names.append(name)
        return tuple(names)

    @cached_property
    def numbers(self) -> Rows:
        """The number of each task among the tasks, and of each access of the orchestration."""
        is_of_host = self.is_of_host
        return np.where(is_of_host, np.cumsum(is_of_host), np.cumsum(~is_of_host)) - 1

    @cached_property
    def is_of_host(self) -> Rows:
        """Whether each row is an access of the orchestration."""
        found: Rows = (self.tasks["traits"] & HOST) != 0
        return found

    def label(self, task: int) -> str:
        """Return the kernel and the number of a task, such as ``add#3``."""
        return f"{self.kernel_names[task]}#{self.numbers[task]}"

    def is_of_2026_08(self, task: int) -> bool:
        """Return whether a task has the edges of the interface of August 2026."""
        return bool(self.tasks["traits"][task] & OF_2026_08)

    def states_edges(self, task: int) -> bool:
        """Return whether a task has accesses for which the program itself states the edges."""
        begin = int(self.tasks["accesses"][task - 1]) if task else 0
        limits = self.accesses["limits"][begin : self.tasks["accesses"][task]]
        return bool(self.tasks["traits"][task] & MANUAL or limits.any())

    def cores(self, task: int) -> str:
        """Return the types of the cores on which a task runs, such as ``aic+aiv``, or nothing."""
        core_type = int(self.tasks["core_type"][task])
        if core_type == 0 and len(self._lanes.get(int(self.tasks["id"][task]), ())) > 1:
            return "aic+aiv"
        return ("aic", "aiv")[core_type] if 0 <= core_type < 2 else ""

    @cached_property
    def _lanes(self) -> Mapping[int, list[int]]:
        """The func_ids of each task that runs several kernels, by the id of the task."""
        lanes: dict[int, list[int]] = defaultdict(list)
        for event in self.events[self.events["kind"] == _LANE]:
            lanes[int(event["second"])].append(int(event["first"]))
        return lanes

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> AccessLog:
        """Create a log from the bytes and lists that the native side returns."""
        given = dict(fields)
        for name, layout in _LAYOUTS.items():
            if name in given:
                given[name] = np.frombuffer(given[name], layout)
        given["files"] = tuple(given["files"])
        given["buffers"] = tuple(Buffer(*buffer) for buffer in given["buffers"])
        arrays = given.get("host_arrays", ())  # the log of a Worker has none
        given["host_arrays"] = tuple(HostArray(*array) for array in arrays)
        return AccessLog(**given)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to a file (NumPy's ``.npz`` format)."""
        facts = {
            "files": self.files,
            "kernels": list(self.kernels.items()),
            "buffers": self.buffers,
            "is_full": self.is_full,
            "blocks": self.blocks,
            "has_ring_ids": self.has_ring_ids,
            "has_accesses": self.has_accesses,
            "is_measured": self.is_measured,
            "host_arrays": self.host_arrays,
        }
        arrays = {name: getattr(self, name) for name in _LAYOUTS}
        write_archive(Path(path), Archive(_KIND, facts, arrays))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> AccessLog:
        """Read a log from a file that :meth:`save` wrote. Raises UsageError for another file."""
        file, what, advice = Path(path), "an access log", "write one with AccessLog.save"
        archive = read_archive(file, what, advice)
        with refusing_damage(file, what, advice):
            if archive.kind != _KIND:
                raise ValueError(f"it is of the kind {archive.kind!r}")
            kernels = dict(archive.content["kernels"])
            return AccessLog.from_fields({**archive.content, **archive.arrays, "kernels": kernels})

    def __repr__(self) -> str:
        return f"<AccessLog: {len(self.tasks)} tasks, {len(self.accesses)} accesses>"
