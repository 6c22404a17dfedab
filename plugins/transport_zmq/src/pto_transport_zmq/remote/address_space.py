"""Memory by address: ranges and their pieces, mapped memory, and the accesses of a task."""

from __future__ import annotations

import ctypes
import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pto_core._worker import TensorArgType
from pto_core.errors import ProtocolError
from pto_core.kernels.data_type import DataType

PIECE_BYTES = 1 << 20
"""Ranges are divided at multiples of this number; no transfer has more bytes."""
PIECES_PER_STEP = 16
"""A gateway copies, compares or frees at most this many pieces before it sends heartbeats again."""


class Range(NamedTuple):
    """The addresses from ``start`` to ``end``, without ``end`` itself."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    def overlaps(self, other: Range) -> bool:
        """Return whether the ranges have a byte in common."""
        return self.start < other.end and other.start < self.end


def pieces_of(whole: Range) -> Iterator[Range]:
    """Yield the parts of a range that lie between multiples of :data:`PIECE_BYTES`."""
    start = whole.start
    while start < whole.end:
        end = min(whole.end, (start // PIECE_BYTES + 1) * PIECE_BYTES)
        yield Range(start, end)
        start = end


class AddressSpace:
    """The mapped ranges that tasks may use, as writable memory.

    ``ranges``: address and memory of each range; they do not overlap. Any thread may call.
    """

    def __init__(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        known = sorted(ranges, key=lambda one: one[0])
        self._starts = [start for start, _ in known]
        self._memory = [memory for _, memory in known]

    @classmethod
    def mapped(cls, ranges: Sequence[tuple[int, int]]) -> AddressSpace:
        """Return the space of some mappings of this process, each with address and size in bytes.

        The mappings must outlive the object.
        """
        return cls(
            (address, memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B"))
            for address, nbytes in ranges
        )

    def memory(self, place: Range) -> memoryview:
        """Return the memory of a range; raise ProtocolError if a byte of it is not mapped."""
        index = bisect_right(self._starts, place.start) - 1
        if index >= 0 and place.start <= place.end:
            offset = place.start - self._starts[index]
            if offset + place.nbytes <= len(self._memory[index]):
                return self._memory[index][offset : offset + place.nbytes]
        raise ProtocolError(
            f"{place.nbytes} bytes at {place.start:#x} are not inside the memory that a Worker and "
            "its children share"
        )


# ---- the accesses of a task to memory, from the tensors of its argument blob ----
#
# The layout of a blob is that of ``pto/abi/arguments.h``. The tensors of a blob for another host
# carry their tag, and whether the submit allocated their memory.

_COUNTS = struct.Struct("<ii")
_TENSOR = struct.Struct("<Q5IIBBB5x")
_FLAG_OFFSET = 33  # offset of the flag child_memory in a tensor
_SCALAR_BYTES = 8
_DIMENSIONS_MAX = 5
_TAG_MASK = 7
_IS_NEW = 8
_TAGS = dict(enumerate(sorted(TensorArgType)))
_READING = (TensorArgType.INPUT, TensorArgType.NO_DEP)
_SIZES = {int(kind): kind.nbytes for kind in DataType}


class Access(NamedTuple):
    """One tensor of a task: its range, its tag, and whether the submit allocated the memory."""

    place: Range
    tag: TensorArgType
    is_new: bool

    @property
    def needs_content(self) -> bool:
        """Whether the memory must have the content of home memory before the task starts.

        That includes an output that was not allocated for the task, because the task may write only
        a part of it.
        """
        return not self.is_new

    @property
    def is_written(self) -> bool:
        """Whether the task may write the memory."""
        return self.tag not in _READING


def accesses_of(blob: bytes | memoryview) -> list[Access]:
    """Return the accesses of a task to memory that hosts share, without empty tensors.

    Tensors in remote buffers are left out, because hosts do not share them. Raises ProtocolError
    for an invalid blob.
    """
    if len(blob) < _COUNTS.size:
        raise ProtocolError(f"an argument blob of {len(blob)} bytes is too short")
    tensors, scalars = _COUNTS.unpack_from(blob)
    wanted = _COUNTS.size + tensors * _TENSOR.size + scalars * _SCALAR_BYTES
    if tensors < 0 or scalars < 0 or len(blob) != wanted:
        raise ProtocolError(
            f"an argument blob with {tensors} tensors and {scalars} scalars cannot have "
            f"{len(blob)} bytes"
        )
    found = []
    for index in range(tensors):
        access = _access(index, *_TENSOR.unpack_from(blob, _COUNTS.size + index * _TENSOR.size))
        if access is not None:
            found.append(access)
    return found


def tensor_count(blob: bytes | memoryview) -> int:
    """Return the number of tensors of a blob that :func:`accesses_of` has accepted."""
    return int(_COUNTS.unpack_from(blob)[0])


def buffer_tensors(blob: bytes | memoryview) -> Iterator[tuple[int, Range]]:
    """Yield the flag's offset and the range of each tensor of a blob that is in a remote buffer.

    The flag is ``child_memory``. :func:`accesses_of` must have accepted the blob. A tensor without
    elements gets a range of one byte.
    """
    for index in range(tensor_count(blob)):
        offset = _COUNTS.size + index * _TENSOR.size
        address, *shape, dimensions, dtype, child_memory, _ = _TENSOR.unpack_from(blob, offset)
        if child_memory:
            nbytes = max(math.prod(shape[:dimensions]) * _SIZES[dtype], 1)
            yield offset + _FLAG_OFFSET, Range(address, address + nbytes)


def _access(index: int, address: int, *values: int) -> Access | None:
    *shape, dimensions, dtype, child_memory, marks = values
    tag = (marks & _TAG_MASK) - 1
    if dimensions > _DIMENSIONS_MAX or dtype not in _SIZES or tag not in _TAGS:
        raise ProtocolError(
            f"tensor {index} of a task is invalid: {dimensions} dimensions, data type {dtype}, "
            f"marks {marks:#x}"
        )
    nbytes = math.prod(shape[:dimensions]) * _SIZES[dtype]
    if address + nbytes > 1 << 63:
        raise ProtocolError(
            f"tensor {index} of a task has {nbytes} bytes at an invalid address, {address:#x}"
        )
    if child_memory or not nbytes:
        return None
    return Access(Range(address, address + nbytes), _TAGS[tag], bool(marks & _IS_NEW))


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 128 << 20  # more than the chunks of a session need


def keep_freed_chunks() -> None:
    """Let ``malloc`` reuse the memory of freed chunks.

    By default each chunk of 1 MiB gets new pages, whose first use takes longer than the copy.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
