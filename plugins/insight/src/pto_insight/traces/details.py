"""What each task was submitted with: source line, arguments and bytes, from the access log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.graphs.log import AccessLog
from pto_insight.graphs.places import INOUT, NO_DEP, TAGS, TYPE_BYTES, TYPES

SUBMIT = np.dtype(
    [
        ("task", "<i8"),
        ("number", "<i8"),
        ("place", "<i4"),
        ("first", "<i4"),
        ("count", "<i4"),
        ("bytes", "<i8"),
    ]
)
"""A row of :attr:`Details.submits`: ``arguments[first : first + count]`` are those of the task.

``number``: of the task in the order of the submits, as in its graph; -1 in the trace of a Worker.
"""

ARGUMENT = np.dtype([("text", "<i4"), ("buffer", "<i4"), ("owner", "<i8"), ("offset", "<i8")])
"""A tensor of a submit. ``offset``: of its first element in the buffer, in elements."""

_RINGS = 4


@dataclass(frozen=True)
class Details:
    """The submits of a run, ordered by task; a block task has one row for each block.

    ``places``: source lines, to which ``submits["place"]`` refers; -1 is unknown. ``texts``: tags,
    data types and shapes. ``buffers``: names of memory that no task allocated; ``owner`` is the
    task that allocated the memory, or -1. ``bytes``: read and written by the task, as far as its
    arguments declare it; -1 if the runtime knows no arguments.
    """

    submits: NDArray[Any]
    arguments: NDArray[Any]
    places: tuple[str, ...]
    texts: tuple[str, ...]
    buffers: tuple[str, ...]

    def rows(self, tasks: NDArray[Any]) -> NDArray[Any]:
        """Return the row of each task in ``submits``, or -1."""
        known = self.submits["task"]
        if not len(known):
            return np.full(len(tasks), -1)
        rows = np.minimum(np.searchsorted(known, tasks), len(known) - 1)
        return np.where(known[rows] == tasks, rows, -1)

    def numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of the tasks of rows of ``submits``; -1 for the row -1."""
        found: NDArray[Any] = np.append(self.submits["number"], -1)[rows]
        return found

    @staticmethod
    def of(log: AccessLog) -> Details:
        """Return the details of the tasks in an access log."""
        texts, text_of = _texts(log.accesses)
        buffers, buffer_of, offset = _buffers(log)
        arguments = np.zeros(len(log.accesses), ARGUMENT)
        arguments["text"], arguments["buffer"] = text_of, buffer_of
        arguments["owner"], arguments["offset"] = log.accesses["owner"], offset
        places, place_of = _places(log)
        submits = np.zeros(len(log.tasks), SUBMIT)
        ends = log.tasks["accesses"].astype("<i8")
        submits["task"], submits["place"] = log.tasks["id"], place_of
        submits["number"] = np.arange(len(log.tasks))
        submits["first"] = np.concatenate([[0], ends[:-1]]) if len(ends) else 0
        submits["count"] = ends - submits["first"]
        submits["bytes"] = _bytes(log, submits) if log.has_accesses else -1
        blocks = _with_blocks(submits, log)
        return Details(blocks[np.argsort(blocks["task"])], arguments, places, texts, buffers)


def _texts(accesses: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return the different texts, and the number of the text of each access."""
    keys = np.zeros((len(accesses), 8), "<u8")
    for column, name in enumerate(("tag", "dtype", "ndims")):
        keys[:, column] = accesses[name]
    inside = np.arange(5) < accesses["ndims"][:, None]
    keys[:, 3:] = np.where(inside, accesses["shapes"], 0)
    found, text_of = np.unique(keys, axis=0, return_inverse=True)
    texts = tuple(
        f"{TAGS[tag]} {TYPES[dtype]} {' x '.join(map(str, shape[:ndims])) or 'scalar'}"
        for tag, dtype, ndims, *shape in found.tolist()
    )
    return texts, text_of.reshape(-1)


def _buffers(log: AccessLog) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any]]:
    """Return the names of buffers, the buffer of each access, and the offset in the buffer."""
    rows = log.accesses
    known = sorted(log.buffers, key=lambda buffer: buffer.address)
    first = np.array([buffer.address for buffer in known], "<u8")
    last = np.array([buffer.address + max(buffer.bytes, 1) for buffer in known], "<u8")
    names = (*(buffer.name for buffer in known), "pipe", "memory")
    number = np.searchsorted(first, rows["address"], side="right") - 1
    if known:
        is_known = (number >= 0) & (rows["address"] < last[np.maximum(number, 0)])
        distance = rows["address"] - first[np.maximum(number, 0)]
    else:
        is_known, distance = np.zeros(len(rows), bool), np.zeros(len(rows), "<u8")
    is_known &= rows["owner"] < 0
    number = np.where(is_known, number, len(known) + (rows["is_pipe"] == 0))
    before = np.where(is_known, distance.astype("<i8") // TYPE_BYTES[rows["dtype"]], 0)
    return names, number, before + rows["start_offset"].astype("<i8")


def _places(log: AccessLog) -> tuple[tuple[str, ...], NDArray[Any]]:
    lines = np.stack([log.tasks["file"].astype("<i8"), log.tasks["line"].astype("<i8")], axis=1)
    found, place_of = np.unique(lines, axis=0, return_inverse=True)
    names = tuple(
        f"{PurePath(log.files[file - 1]).name}:{line}" if file else "?"
        for file, line in found.tolist()
    )
    unknown = lines[:, 0] == 0
    return names, np.where(unknown, -1, place_of.reshape(-1))


def _bytes(log: AccessLog, submits: NDArray[Any]) -> NDArray[Any]:
    rows = log.accesses
    inside = np.arange(5) < rows["ndims"][:, None]
    elements = np.where(inside, rows["shapes"], 1).astype("<i8").prod(axis=1)
    passes = np.where(rows["tag"] == INOUT, 2, np.where(rows["tag"] == NO_DEP, 0, 1))
    moved = elements * passes * TYPE_BYTES[rows["dtype"]] * (rows["is_pipe"] == 0)
    until = np.concatenate([[0], np.cumsum(moved)])
    totals = until[submits["first"] + submits["count"]] - until[submits["first"]]
    shares: NDArray[Any] = totals // np.maximum(log.tasks["blocks"], 1).astype("<i8")
    return shares


def _with_blocks(submits: NDArray[Any], log: AccessLog) -> NDArray[Any]:
    """Return one row for each block. The ids of blocks follow each other in their ring."""
    counts = np.maximum(log.tasks["blocks"], 1).astype("<i8")
    rows = np.repeat(submits, counts)
    block = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows["task"] += block * (_RINGS if log.has_ring_ids else 1)
    return rows
