"""Arrays that a Worker and its children have at the same address."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_core._hierarchy import SharedBlock, SharedMapping
from pto_core.errors import CapacityError, UsageError
from pto_core.hierarchy.memory.budget import LIMIT_SETTING, Budget
from pto_core.hierarchy.memory.free_list import FreeList
from pto_core.hierarchy.processes.descriptors import parent_only_mapping
from pto_core.kernels.data_type import DataType, shape_of, wrong_shape

_ALIGNMENT = 64
_LEAST_CAPACITY = 1 << 26


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
        self._mapping = _reserved(capacity or _default_capacity(self.budget))
        self.budget.add_backing(self._mapping)
        self._free = FreeList(self._mapping.nbytes)
        self._arrays = 0
        self._nbytes = 0
        self._lock = Lock()
        # Offset and size of zeroed blocks without views. Any thread may append at any time.
        self._gone: deque[tuple[int, int]] = deque()
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
        extents = shape_of(shape)
        kind = DataType.of(dtype)
        nbytes = math.prod(extents) * kind.nbytes
        self._check_usable()
        taken = max(-(-nbytes // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)
        what = f"an array of {_text(extents)} {kind.name.lower()}"
        offset = self._take(taken, what)
        block = SharedBlock(self._mapping, offset, taken, self._gone.append)
        try:
            return np.asarray(block)[:nbytes].view(kind.numpy).reshape(extents)
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

    def settle(self) -> None:
        """Return blocks without views to the free list, and their bytes to the budget."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        while self._gone:
            offset, nbytes = self._gone.popleft()
            self._free.give_back(offset, nbytes)
            self.budget.give_back(nbytes)
            self._arrays -= 1
            self._nbytes -= nbytes

    def _take(self, nbytes: int, what: str) -> int:
        with self._lock:
            self._settle()
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
            self._arrays += 1
            self._nbytes += nbytes
            return offset

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise UsageError(
                f"shared_array was called in process {os.getpid()}, a child of the Worker's "
                f"process {self._process}; make the array there and pass it as an argument"
            )
        if self._is_closed:
            raise UsageError("shared_array was called after close; create arrays before close")


def _default_capacity(budget: Budget) -> int:
    """Return the limit of the budget, or the memory size of the machine."""
    if budget.limit is not None:
        return max(budget.limit, _ALIGNMENT)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reserved(capacity: int) -> SharedMapping:
    """Reserve addresses; reserve fewer if a limit of the process (``ulimit -v``) refuses them."""
    while True:
        try:
            return parent_only_mapping(SharedMapping(capacity))
        except OSError as error:
            if capacity // 2 < _LEAST_CAPACITY:
                raise CapacityError(
                    f"reserving {capacity} bytes of addresses for shared arrays failed: "
                    f"{error.strerror}; raise the limit of this process (ulimit -v)",
                    name=LIMIT_SETTING,
                    value=capacity,
                ) from error
            capacity //= 2


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one"
