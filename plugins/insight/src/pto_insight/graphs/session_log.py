"""The access log of a session, which records its submits while its tasks run."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import pto_core
from pto_core.kernels import DataType
from pto_insight.graphs.log import ACCESS, EVENT, TASK, AccessLog, Buffer
from pto_insight.graphs.places import INPUT, OUTPUT
from pto_insight.traces.details import Heap

if TYPE_CHECKING:
    from pto_core import TaskArgs

_OWN = tuple(os.path.dirname(path) + os.sep for path in (pto_core.__file__, __file__))
_EDGE, _SCOPE_BEGIN, _SCOPE_END = range(3)
_ALLOCATED, _ON_CHIP = 1 << 62, 1 << 61
"""Addresses of memory that the session allocates, and of memory of chips."""


class SessionLog:
    """Records the submits, allocations and scopes of a session. Any thread may call the methods.

    ``values``: the addresses at which the Worker stores values. The memory of a result is named by
    the task that returns it, such as ``result of f#3``. Other arguments there order nothing, so
    they are no accesses.
    """

    def __init__(self, *, is_full: bool, values: range) -> None:
        self._is_full, self._values = is_full, values
        # the number of a task or 0.5 more than that of the task before, and what happened
        self._steps: list[tuple[float, Any]] = []
        self._last = -1

    def add_task(
        self, number: int, name: str, members: Sequence[TaskArgs | None], after: Iterable[int]
    ) -> None:
        """Record a submit, which has been made."""
        tensors = [
            (tensor.address, tensor.nbytes, int(args.tag(place)), tensor.child_memory, tensor.box)
            for args in members
            if args is not None
            for place, tensor in enumerate(args.tensors)
        ]
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
            frame = frame.f_back
        where = frame.f_code.co_filename, frame.f_lineno
        self._last = max(self._last, number)
        self._steps.append((number, (name, len(members), tensors, tuple(after), where)))

    def add_allocation(self, address: int, nbytes: int) -> None:
        """Record memory that the program allocated from a heap ring."""
        self._steps.append((self._last + 0.5, (address, nbytes)))

    @contextmanager
    def scope(self, scope: AbstractContextManager[None]) -> Iterator[None]:
        """Open a scope and record its begin and its end."""
        with scope:
            self._steps.append((self._last + 0.5, _SCOPE_BEGIN))
            yield
            self._steps.append((self._last + 0.5, _SCOPE_END))

    def log(self) -> AccessLog:
        """Return the access log of the submits so far."""
        writer = _Writer(self._values)
        for number, step in sorted(self._steps, key=lambda one: one[0]):
            if isinstance(step, int):
                writer.add_event(step, 0, 0)
            elif len(step) == 2:
                writer.allocate(*step)
            else:
                writer.add_task(int(number), *step)
        return writer.log(self._is_full)


class _Writer:
    """Writes the rows of an access log, as those of a captured graph."""

    def __init__(self, values: range) -> None:
        self._values = values
        self._heap = Heap()
        self._end = _ALLOCATED
        self._allocations = 0
        self._known: set[int] = set()
        self._tasks: list[tuple[Any, ...]] = []
        self._accesses: list[Any] = []
        self._events: list[tuple[Any, ...]] = []
        self._files: dict[str, int] = {}
        self._kernels: dict[str, int] = {}
        self._buffers: list[Buffer] = []

    def add_task(
        self,
        number: int,
        name: str,
        members: int,
        tensors: Sequence[tuple[int, int, int, bool, Any]],
        after: Sequence[int],
        where: tuple[str, int],
    ) -> None:
        for parameter, (address, nbytes, tag, is_on_chip, box) in enumerate(tensors):
            if address in self._values and not is_on_chip:
                if tag == OUTPUT:
                    self._add_block(f"result of {name}#{len(self._tasks)}", address, nbytes, True)
                elif tag == INPUT and self._heap.find(address) is None:
                    continue  # an argument that is a value
            row = self._add_access(address + _ON_CHIP * is_on_chip, nbytes, tag, parameter)
            if box is not None:
                _set_box(row, address, *box)
        file = self._files.setdefault(where[0], len(self._files) + 1)
        kernel = self._kernels.setdefault(name, len(self._kernels))
        blocks = members if members > 1 else 0
        row = (number, file, where[1], kernel, 0, len(self._accesses), -1, blocks, 0)
        self._tasks.append(row)
        self._known.add(number)
        for producer in self._known.intersection(after):  # not tasks of an earlier run
            self.add_event(_EDGE, producer, number)

    def allocate(self, address: int, nbytes: int) -> None:
        self._add_block(f"alloc {self._allocations}", address, nbytes, False)
        self._allocations += 1

    def add_event(self, kind: int, first: int, second: int) -> None:
        self._events.append((kind, -1, 0, len(self._tasks), first, second))

    def log(self, is_full: bool) -> AccessLog:
        return AccessLog(
            np.array(self._tasks, TASK),
            np.concatenate(self._accesses) if self._accesses else np.zeros(0, ACCESS),
            np.array(self._events, EVENT),
            tuple(self._files),
            {number: name for name, number in self._kernels.items()},
            tuple(self._buffers),
            is_full=is_full,
            blocks=0,
            has_ring_ids=False,
        )

    def _add_block(self, name: str, address: int, nbytes: int, is_result: bool) -> None:
        """Give memory, which is used again later, a name and an address of its own."""
        base, self._end = self._end, self._end + max(nbytes, 1)
        self._heap.add(address, address + max(nbytes, 1), (base, nbytes))
        self._buffers.append(Buffer(name, base, nbytes, is_result, is_result))

    def _add_access(self, address: int, nbytes: int, tag: int, parameter: int) -> Any:
        (row,) = rows = np.zeros(1, ACCESS)
        block = self._heap.find(address)
        offset, size = 0, nbytes
        if block is not None:
            offset = address - block[0]
            address, size = block[1]
        row["address"], row["size"], row["owner"] = address, size, -1
        row["raw_shapes"][0], row["shapes"][0] = max(size, offset + nbytes), nbytes
        row["offsets"][0] = row["start_offset"] = offset
        row["ndims"], row["dtype"] = 1, int(DataType.UINT8)
        row["tag"], row["parameter"] = tag, min(parameter, 255)
        self._accesses.append(rows)
        return row


def _set_box(
    row: Any,
    address: int,
    base: int,
    raw: tuple[int, ...],
    low: tuple[int, ...],
    extent: tuple[int, ...],
) -> None:
    """Change an access of memory at an address to its box of a buffer; see ContinuousTensor."""
    before = address - base
    row["address"] = int(row["address"]) + int(row["start_offset"]) - before
    row["size"], row["start_offset"], row["ndims"] = math.prod(raw), before, len(raw)
    for dim in range(len(raw)):
        place = len(raw) - 1 - dim
        row["raw_shapes"][place], row["shapes"][place] = raw[dim], extent[dim]
        row["offsets"][place], row["order"][place] = low[dim], place
