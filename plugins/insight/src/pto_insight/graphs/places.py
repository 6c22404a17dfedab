"""Names for the memory of accesses: a buffer, and the part of it that a task names.

A buffer of a heap ring is named by the task that allocated it, never by its address, because rings
are reused. Other memory is an argument of the run, ``rt.empty``, or "memory n" in the order of its
first use.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from pto_core.kernels import DataType, Direction
from pto_insight.graphs.log import AccessLog, Buffer, Rows

TAGS = ("INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING", "NO_DEP")
INPUT, OUTPUT, INOUT = Direction.IN, Direction.OUT, Direction.INOUT
OUTPUT_EXISTING, NO_DEP = Direction.OUT_EXISTING, Direction.NO_DEP
TYPES = tuple(kind.name.lower() for kind in DataType)
TYPE_BYTES = np.array([kind.nbytes for kind in DataType], "<i8")


class ViewLayout:
    """How a view lies in its buffer; distances in elements.

    ``order``: the dimensions, the innermost in memory first. ``strides``: the distance of two
    neighbours, by dimension. ``start``: the distance of the first element from the beginning of the
    raw shape, which has ``size`` elements.
    """

    def __init__(self, row: Rows) -> None:
        dims = range(int(row["ndims"]))
        self.order = sorted(dims, key=lambda dim: -int(row["order"][dim]))
        self.strides = [0] * len(dims)
        self.size = 1
        for dim in self.order:
            self.strides[dim] = self.size
            self.size *= int(row["raw_shapes"][dim])
        self.start = sum(int(row["offsets"][dim]) * self.strides[dim] for dim in dims)


def element_bytes(row: Rows) -> int:
    """Return the size of an element of an access."""
    return int(TYPE_BYTES[row["dtype"]])


class BufferPart(NamedTuple):
    """A part of a buffer: its name, bytes from ``begin`` to ``end``, and the view as text."""

    buffer: str
    begin: int
    end: int
    text: str


class Places:
    """Finds the place of each access of a log. ``extents``: its first and last address."""

    def __init__(self, log: AccessLog, extents: Rows) -> None:
        self._log = log
        self._extents = extents
        self._known: dict[int, BufferPart] = {}

    def of(self, access: int) -> BufferPart:
        """Return the place of an access."""
        if access not in self._known:
            self._known[access] = self._find(access)
        return self._known[access]

    def bytes_at(self, access: int, begin: int, end: int) -> tuple[int, int]:
        """Return a range of addresses, which lies in the access, as bytes of its buffer."""
        offset = self.of(access).begin - int(self._extents[access][0])
        return begin + offset, end + offset

    def base(self, access: int) -> tuple[str, int]:
        """Return the name and the address of the buffer of an access."""
        row = self._log.accesses[access]
        owner, address = int(row["owner"]), int(row["address"])
        if owner >= 0:
            return self._output(owner, address)
        if address >> 63:
            return f"pipe {self._pipes[address]}", address
        if (exact := self._buffer_at.get(address)) is not None:
            return exact.name, address
        for buffer in self._log.buffers:
            if buffer.address <= address < buffer.address + max(buffer.bytes, 1):
                return buffer.name, buffer.address
        return f"memory {self._others[address]}", address

    def _find(self, access: int) -> BufferPart:
        row = self._log.accesses[access]
        name, base = self.base(access)
        element = element_bytes(row)
        start = int(row["start_offset"])
        begin = int(row["address"]) - base + start * element
        size = int(self._extents[access][1]) - int(self._extents[access][0])
        return BufferPart(name, begin, begin + size, self._text(row, name, begin, begin + size))

    def _text(self, row: Rows, name: str, begin: int, end: int) -> str:
        dims = int(row["ndims"])
        raw, offsets, shapes = (row[name][:dims] for name in ("raw_shapes", "offsets", "shapes"))
        if row["is_pipe"] or not shapes.all():
            return f"{name} (key)"
        if ViewLayout(row).start != int(row["start_offset"]):
            return f"{name}[bytes {begin}:{end}]"
        if (shapes == raw).all():
            return name
        parts = (f"{low}:{low + size}" for low, size in zip(offsets, shapes, strict=True))
        return f"{name}[{', '.join(parts)}]"

    def _output(self, owner: int, address: int) -> tuple[str, int]:
        task = self._task_of[owner]
        first = 0 if task == 0 else int(self._log.tasks[task - 1]["accesses"])
        rows = self._log.accesses[first : int(self._log.tasks[task]["accesses"])]
        for row in rows[(rows["owner"] == owner) & (rows["tag"] == OUTPUT)]:
            base = int(row["address"])
            if base <= address < base + max(int(row["size"]), 1):
                return f"{self._log.label(task)}.{row['parameter']}", base
        return self._log.label(task), int(self._log.tasks[task]["heap"])

    @cached_property
    def _buffer_at(self) -> dict[int, Buffer]:
        return {buffer.address: buffer for buffer in reversed(self._log.buffers)}

    @cached_property
    def _task_of(self) -> dict[int, int]:
        return {int(task_id): task for task, task_id in enumerate(self._log.tasks["id"])}

    @cached_property
    def _pipes(self) -> dict[int, int]:
        addresses = self._log.accesses["address"]
        return _numbers(addresses[addresses >> np.uint64(63) > 0])

    @cached_property
    def _others(self) -> dict[int, int]:
        rows = self._log.accesses
        return _numbers(rows["address"][rows["owner"] < 0])


def _numbers(addresses: Rows) -> dict[int, int]:
    return {int(address): n for n, address in enumerate(dict.fromkeys(addresses.tolist()))}
