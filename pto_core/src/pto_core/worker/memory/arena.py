"""Arrays that a Worker and its children have at the same address.

The module also has the budget and the free memory that limit these arrays.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from pto_core._worker import SharedBlock, SharedMapping
from pto_core.errors import CapacityError, UsageError
from pto_core.kernels.data_type import DataType, shape_of, wrong_shape
from pto_core.worker.processes.parking import parent_only_mapping

_Reserved = TypeVar("_Reserved")
_KIB = 1024
_STRICT_OVERCOMMIT = "2"


@dataclass(frozen=True)
class Availability:
    """The number of bytes that can be used; ``limited_by`` names the limit in messages."""

    nbytes: int
    limited_by: str


def available(root: str = "") -> Availability:
    """Return the free memory of the machine or, if less, of one of the process's control groups.

    Page cache that the kernel can drop counts as free. A file that cannot be read sets no limit.
    ``root``: a prefix for ``/proc`` and ``/sys``.
    """
    found = [_machine(root), *_groups(root)]
    return min(found, key=lambda one: one.nbytes)


def _machine(root: str) -> Availability:
    numbers = _numbers(f"{root}/proc/meminfo")
    free = Availability(numbers.get("MemAvailable", 1 << 62) * _KIB, "the memory of this machine")
    if _content(f"{root}/proc/sys/vm/overcommit_memory") != _STRICT_OVERCOMMIT:
        return free
    left = (numbers.get("CommitLimit", 0) - numbers.get("Committed_AS", 0)) * _KIB
    strict = Availability(max(left, 0), "the commit limit of this machine")
    return min(free, strict, key=lambda one: one.nbytes)


def _groups(root: str) -> list[Availability]:
    """Return the free memory of each limited control group that contains this process."""
    found = []
    for line in _content(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, reader = f"{root}/sys/fs/cgroup", _group_of_version_2
        elif "memory" in controllers.split(","):
            top, reader = f"{root}/sys/fs/cgroup/memory", _group_of_version_1
        else:
            continue
        group = path.rstrip("/")
        while True:
            left = reader(f"{top}{group}")
            if left is not None:
                found.append(Availability(max(left, 0), f"the control group {top}{group}"))
            if not group:
                break
            group = group.rpartition("/")[0]
    return found


def _group_of_version_2(group: str) -> int | None:
    limit = _content(f"{group}/memory.max")
    if not limit.isdecimal():
        return None
    used = int(_content(f"{group}/memory.current") or 0)
    return int(limit) - used + _numbers(f"{group}/memory.stat").get("inactive_file", 0)


def _group_of_version_1(group: str) -> int | None:
    limit = _content(f"{group}/memory.limit_in_bytes")
    if not limit.isdecimal() or int(limit) >= 1 << 60:
        return None
    used = int(_content(f"{group}/memory.usage_in_bytes") or 0)
    return int(limit) - used + _numbers(f"{group}/memory.stat").get("total_inactive_file", 0)


def _numbers(path: str) -> dict[str, int]:
    """Return the numbers in a file whose lines contain a name, a number and an optional unit."""
    found = {}
    for line in _content(path).splitlines():
        name, _, rest = line.replace(":", " ").partition(" ")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0])
    return found


def _content(path: str) -> str:
    """Return the text of a file; an empty text if it cannot be read."""
    try:
        with open(path) as opened:
            return opened.read().strip()
    except OSError:
        return ""


LIMIT_SETTING = "shared_memory_limit"


class Backing(Protocol):
    """A mapping in which memory is allocated."""

    @property
    def resident_bytes(self) -> int:
        """The number of bytes of the mapping that occupy physical memory."""


class Budget:
    """Counts allocated bytes, and refuses an allocation that would exceed the limit.

    ``limit``: the maximum number of allocated bytes. If it is None, the limit is the free memory of
    the machine and of the control groups. From this, the allocated pages that were not written yet
    are subtracted, because they will occupy memory later.
    """

    def __init__(
        self, limit: int | None = None, measure: Callable[[], Availability] = available
    ) -> None:
        self.limit = limit
        self.allocated = 0
        self._measure = measure
        # the existing mappings in which memory is allocated
        self._backings: list[ref[Backing]] = []

    def add_backing(self, backing: Backing) -> None:
        """Count the resident pages of a mapping that contains allocations, while it exists."""
        known = [one for one in self._backings if one() is not None]
        self._backings = [*known, ref(backing)]

    def take(self, nbytes: int, what: str) -> None:
        """Count ``nbytes`` as allocated, or raise CapacityError with the purpose ``what``."""
        left, reason = self._left()
        if nbytes > left:
            raise CapacityError(
                f"{what} needs {nbytes} bytes of shared memory, {max(left, 0)} are left: {reason}; "
                f"delete arrays that are no longer needed, or raise {LIMIT_SETTING}",
                name=LIMIT_SETTING,
                value=nbytes,
                limit=max(left, 0),
            )
        self.allocated += nbytes

    def give_back(self, nbytes: int) -> None:
        """Count ``nbytes`` as released."""
        self.allocated -= nbytes

    def _left(self) -> tuple[int, str]:
        if self.limit is not None:
            reason = f"{self.allocated} of {LIMIT_SETTING} = {self.limit} bytes are allocated"
            return self.limit - self.allocated, reason
        free = self._measure()
        promised = max(self.allocated - _resident(self._backings), 0)
        reason = f"{free.limited_by} leaves {free.nbytes} bytes"
        if promised:
            reason += f", of which {promised} belong to arrays that were not written yet"
        return free.nbytes - promised, reason


def _resident(backings: Iterable[ref[Backing]]) -> int:
    return sum(known.resident_bytes for one in backings if (known := one()) is not None)


class FreeList:
    """The free blocks of a range.

    ``_by_size`` and ``_by_offset`` contain the same blocks. No two free blocks are adjacent.
    """

    def __init__(self, nbytes: int) -> None:
        self._by_size: list[tuple[int, int]] = []
        self._by_offset: list[tuple[int, int]] = []
        self._add(0, nbytes)

    def take(self, nbytes: int) -> int | None:
        """Allocate from the smallest free block that is large enough.

        Returns the offset, or None if no block is large enough.
        """
        place = bisect_left(self._by_size, (nbytes, 0))
        if place == len(self._by_size):
            return None
        size, offset = self._by_size[place]
        self._cut(offset, size, offset, nbytes)
        return offset

    def take_from(self, first: int, nbytes: int) -> int | None:
        """Allocate at the lowest free offset from ``first``; if there is none, from 0.

        Returns the offset, or None if no block is large enough.
        """
        for least in (first, 0):
            for offset, size in self._by_offset:
                start = max(offset, least)
                if start + nbytes <= offset + size:
                    self._cut(offset, size, start, nbytes)
                    return start
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free an allocated block."""
        place = bisect_left(self._by_offset, (offset, 0))
        if place < len(self._by_offset) and self._by_offset[place][0] == offset + nbytes:
            after = self._by_offset[place]
            self._remove(*after)
            nbytes += after[1]
        if place > 0 and sum(self._by_offset[place - 1]) == offset:
            before = self._by_offset[place - 1]
            self._remove(*before)
            offset, nbytes = before[0], before[1] + nbytes
        self._add(offset, nbytes)

    @property
    def largest(self) -> int:
        """The size of the largest free block."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The offset and size of each free block, in ascending order."""
        return list(self._by_offset)

    def _cut(self, offset: int, size: int, start: int, nbytes: int) -> None:
        """Remove a part of a free block."""
        self._remove(offset, size)
        end = start + nbytes
        for rest, count in ((offset, start - offset), (end, offset + size - end)):
            if count > 0:
                self._add(rest, count)

    def _add(self, offset: int, nbytes: int) -> None:
        insort(self._by_size, (nbytes, offset))
        insort(self._by_offset, (offset, nbytes))

    def _remove(self, offset: int, nbytes: int) -> None:
        del self._by_size[bisect_left(self._by_size, (nbytes, offset))]
        del self._by_offset[bisect_left(self._by_offset, (offset, nbytes))]


_ALIGNMENT = 64
_USER_TYPES = 256
_LEAST_CAPACITY = 1 << 26
_LARGE_BYTES = 1 << 20
_KEPT_MAX_BYTES = 1 << 27


@dataclass(frozen=True)
class ArenaStatistics:
    """The number of live arrays, their bytes, and the largest free piece."""

    arrays: int
    nbytes: int
    largest_free: int
    capacity: int


class SharedArena:
    """A range of shared addresses, from which arrays are allocated.

    The constructor reserves the address range, before the first child starts. Memory is used only
    for pages that were written. An array lives as long as a view of it exists; then its memory is
    zeroed and reused. Arrays stay valid after :meth:`close`. Any thread may call the methods; a
    forked process can only read the counters.

    The pages of one large copy without views are kept for the next copy of the same size. Otherwise
    the system would clear and map each page again, which takes six times as long as the copy.

    No Python code runs when a view is destroyed, because an exception that a signal handler raises
    would be lost there. Native code zeroes the memory; the next call updates the free list.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        capacity: int | None = None,
    ) -> None:
        self.budget = budget or Budget()
        nbytes = capacity or default_capacity(self.budget)
        self._mapping = parent_only_mapping(
            reserved(SharedMapping, nbytes, _LEAST_CAPACITY, "shared arrays")
        )
        self.budget.add_backing(self._mapping)
        self._free = FreeList(self._mapping.nbytes)
        self._arrays = 0
        self._nbytes = 0
        self._lock = Lock()
        # Offset and size of blocks without views, and whether they are kept; the others are zeroed.
        # Any thread may append at any time.
        self._gone: deque[tuple[int, int, bool]] = deque()
        self._kept: tuple[int, int] | None = None  # the kept block, which is not in the free list
        self._process = os.getpid()
        self._is_closed = False

    @property
    def mapping(self) -> SharedMapping:
        """The mapping of the whole address range."""
        return self._mapping

    def array(self, shape: int | Sequence[int], dtype: Any = "float32") -> npt.NDArray[Any]:
        """Return a new array of zeros.

        Raises UsageError for an invalid shape or type, after :meth:`close`, and in a child. Raises
        CapacityError if memory or addresses are exhausted. After an error, nothing has changed.
        """
        return self._made(shape, dtype, is_copy=False)[0]

    def copied(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of an array. Raises the same errors as :meth:`array`."""
        is_large = values.nbytes >= _LARGE_BYTES
        made, is_new = self._made(values.shape, values.dtype, is_copy=is_large)
        if not is_large or not is_new or not values.flags.c_contiguous:
            made[...] = values
            return made
        # A write through the file does not clear the pages first, unlike their first use.
        content = values.reshape(-1).view(np.uint8).data
        done, offset = 0, made.ctypes.data - self._mapping.address
        while done < values.nbytes:
            done += os.pwrite(self._mapping.descriptor, content[done:], offset + done)
        return made

    def _made(
        self, shape: int | Sequence[int], dtype: Any, *, is_copy: bool
    ) -> tuple[npt.NDArray[Any], bool]:
        """Return an array, and whether its memory is new, so that it contains zeros.

        ``is_copy``: whether the caller overwrites all of it.
        """
        extents = shape_of(shape)
        kind = DataType.of(dtype)
        nbytes = math.prod(extents) * kind.nbytes
        self._check_usable()
        taken = max(-(-nbytes // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)
        what = f"an array of {_text(extents)} {kind.name.lower()}"
        offset, is_new = self._take(taken, what, is_copy=is_copy)
        may_keep = is_copy and taken <= _KEPT_MAX_BYTES
        # An array interface has no name for a type of ml_dtypes.
        is_named = kind.numpy.num < _USER_TYPES
        name = kind.numpy.str if is_named else f"|V{kind.nbytes}"
        note = self._gone.append
        block = SharedBlock(self._mapping, offset, taken, note, extents, name, may_keep)
        try:
            made = np.asarray(block)
            return (made if is_named else made.view(kind.numpy)), is_new
        except ValueError as error:  # too many dimensions, or too large ones beside a zero
            raise wrong_shape(shape, str(error)) from None

    def statistics(self) -> ArenaStatistics:
        """Return the counters of live arrays and free space."""
        with self._lock:
            self._settle()
            return ArenaStatistics(
                self._arrays, self._nbytes, self._free.largest, self._mapping.nbytes
            )

    def close(self) -> None:
        """Refuse further arrays; existing arrays stay valid."""
        self._is_closed = True
        with self._lock:
            self._settle()
            self._drop_kept()
            self._mapping.try_keep()  # so that no block is kept from now on

    def settle(self) -> None:
        """Return blocks without views to the free list, and their bytes to the budget."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        while self._gone:
            offset, nbytes, is_kept = self._gone.popleft()
            self._arrays -= 1
            self._nbytes -= nbytes
            if is_kept:
                self._kept = offset, nbytes
            else:
                self._give_back(offset, nbytes)

    def _give_back(self, offset: int, nbytes: int) -> None:
        self._free.give_back(offset, nbytes)
        self.budget.give_back(nbytes)

    def _drop_kept(self) -> bool:
        """Free the kept block; return whether there was one."""
        if self._kept is None:
            return False
        self._mapping.zero(*self._kept)
        self._give_back(*self._kept)
        self._kept = None
        self._mapping.release_kept()
        return True

    def _take(self, nbytes: int, what: str, *, is_copy: bool) -> tuple[int, bool]:
        """Return the offset of a block, and whether it contains zeros; otherwise it was kept."""
        with self._lock:
            self._settle()
            kept = self._kept if is_copy else None
            is_new = kept is None or kept[1] != nbytes
            if kept is not None and not is_new:
                offset, self._kept = kept[0], None
                self._mapping.release_kept()
            else:
                if is_copy:
                    self._drop_kept()
                try:
                    offset = self._new(nbytes, what)
                except CapacityError:
                    if not self._drop_kept():
                        raise
                    offset = self._new(nbytes, what)
            self._arrays += 1
            self._nbytes += nbytes
            return offset, is_new

    def _new(self, nbytes: int, what: str) -> int:
        self.budget.take(nbytes, what)
        offset = self._free.take(nbytes)
        if offset is None:
            self.budget.give_back(nbytes)
            raise CapacityError(
                f"{what} needs {nbytes} contiguous bytes, but the largest free block has "
                f"{self._free.largest}: {self._arrays} arrays with {self._nbytes} bytes are "
                f"alive in {self._mapping.nbytes} that were reserved before the first child; "
                f"delete some, or set a larger {LIMIT_SETTING} before init",
                name=LIMIT_SETTING,
                value=nbytes,
                limit=self._free.largest,
            )
        return offset

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise UsageError(
                f"shared_array was called in process {os.getpid()}, a child of the Worker's "
                f"process {self._process}; make the array there and pass it as an argument"
            )
        if self._is_closed:
            raise UsageError("shared_array was called after close; create arrays before close")


def default_capacity(budget: Budget) -> int:
    """Return the limit of the budget, or the memory size of the machine."""
    if budget.limit is not None:
        return max(budget.limit, _ALIGNMENT)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def reserved(
    kind: Callable[[int], _Reserved],
    nbytes: int,
    least: int,
    purpose: str,
    setting: str = LIMIT_SETTING,
) -> _Reserved:
    """Reserve addresses; reserve fewer if a limit of the process (``ulimit -v``) refuses them.

    Raises CapacityError for ``setting``, with ``purpose`` in its message, if ``least`` bytes are
    refused too.
    """
    while True:
        try:
            return kind(nbytes)
        except OSError as error:
            if nbytes // 2 < least:
                advice = "" if setting == LIMIT_SETTING else f"set a smaller {setting}, or "
                raise CapacityError(
                    f"reserving {nbytes} bytes of addresses for {purpose} failed: "
                    f"{error.strerror}; {advice}raise the limit of this process (ulimit -v)",
                    name=setting,
                    value=nbytes,
                ) from error
            nbytes //= 2


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one"
