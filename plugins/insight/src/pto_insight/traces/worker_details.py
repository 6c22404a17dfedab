"""What the tasks of a Worker were submitted with: source lines and arguments.

The record of a submit contains its position in the program. From level 2 on, records of its
arguments follow; ``pto_core/native/hierarchy/trace/events.hpp`` defines them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.graphs.places import INOUT, NO_DEP, TAGS, TYPE_BYTES, TYPES
from pto_insight.traces.details import ARGUMENT, SUBMIT, Details
from pto_insight.traces.records import Event

KIND = np.dtype(
    [
        ("shapes", "<u4", 5),
        ("member", "<u2"),
        ("ndims", "u1"),
        ("dtype", "u1"),
        ("tag", "u1"),
        ("is_allocated", "u1"),
        ("child_memory", "u1"),
        ("pad", "u1"),
    ]
)
"""``pto::hierarchy::ArgumentKind``."""

CALLABLE = np.uint64(0xFFFFFF)
"""The bits of the callable in the record of a submit."""

_PLACE_SHIFT, _CODE_BITS = np.uint64(24), 20
_KIND_SHIFT = np.uint64(40)
_TASK = np.uint64((1 << 40) - 1)
_MEMBER_BITS = 16

PlaceOf = Callable[[int, int], tuple[Any, Any]]
"""The method ``trace_place`` of the native driver."""


def worker_details(records: NDArray[Any], kinds: bytes, place_of: PlaceOf) -> Details:
    """Return the submits of a Worker; ``submits["task"]`` is :func:`detail_key`.

    ``buffers`` names memory that no task allocated: ``memory N`` is a range of addresses that
    tasks use, ``alloc N`` is memory that the program allocated without a task.
    """
    submitted = records[records["event"] == Event.SUBMIT]
    places, place_of_submit = _places(submitted["b"] >> _PLACE_SHIFT, place_of)
    tasks = submitted["a"].astype("<i8")
    used = _Uses.of(records, np.frombuffer(kinds, KIND))
    arguments, buffers = _arguments(used, set(tasks.tolist()))
    is_of_task = np.isin(used.tasks, tasks)
    keys = detail_key(used.tasks, used.kinds["member"])[is_of_task]
    order = np.argsort(keys, kind="stable")
    submits = np.zeros(len(np.union1d(keys, detail_key(tasks, 0))), SUBMIT)
    submits["number"] = -1
    submits["task"] = np.union1d(keys, detail_key(tasks, 0))
    submits["first"] = np.searchsorted(keys[order], submits["task"], side="left")
    submits["count"] = np.searchsorted(keys[order], submits["task"], side="right")
    submits["count"] -= submits["first"]
    submits["place"] = _looked_up(tasks, place_of_submit, submits["task"] >> _MEMBER_BITS)
    moved = np.concatenate([[0], np.cumsum(used.moved[is_of_task][order])])
    has_arguments = submits["count"] > 0
    total = moved[submits["first"] + submits["count"]] - moved[submits["first"]]
    submits["bytes"] = np.where(has_arguments, total, -1)
    return Details(submits, arguments[is_of_task][order], places, used.texts, buffers)


def detail_key(tasks: Any, members: Any) -> NDArray[np.int64]:
    """Return the number that identifies a member of a task in the details of a Worker."""
    found: NDArray[np.int64] = np.asarray(tasks, "<i8") << _MEMBER_BITS | np.asarray(members, "<i8")
    return found


def by_task(details: Details) -> Details:
    """Return the details with one row for each task, with the mean bytes of its members."""
    tasks, first, members = np.unique(
        details.submits["task"] >> _MEMBER_BITS, return_index=True, return_counts=True
    )
    submits = details.submits[first]
    moved = np.add.reduceat(details.submits["bytes"], first) if len(first) else 0
    submits["task"] = tasks
    submits["bytes"] = np.where(submits["bytes"] < 0, -1, moved // members)
    return replace(details, submits=submits)


def rows_of_members(details: Details, tasks: Any, members: Any) -> NDArray[np.int64]:
    """Return the row of each member in ``submits``; that of its task if it has no arguments."""
    rows = details.rows(detail_key(tasks, np.maximum(members, 0)))
    found: NDArray[np.int64] = np.where(rows < 0, details.rows(detail_key(tasks, 0)), rows)
    return found


def place_text(details: Details, row: int) -> str:
    """Return the source line of a row of ``submits``, such as ``graph.py:12``, or ``"?"``."""
    place = int(details.submits["place"][row]) if row >= 0 else -1
    return details.places[place] if place >= 0 else "?"


def argument_texts(details: Details, row: int, *, has_memory: bool = True) -> Iterator[str]:
    """Yield the arguments of a row of ``submits``; without ``has_memory``, only how it uses them.

    There is none below level 2.
    """
    if row < 0:
        return
    first = int(details.submits["first"][row])
    count = int(details.submits["count"][row])
    for text, buffer, owner, offset in details.arguments[first : first + count].tolist():
        memory = f"output of task {owner}" if owner >= 0 else details.buffers[buffer]
        begin = f" from element {offset}" if offset else ""
        yield f"{details.texts[text]} in {memory}{begin}" if has_memory else details.texts[text]


def _places(words: NDArray[Any], place_of: PlaceOf) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the source lines, and the number of the line of each submit, or -1."""
    distinct, number_of = np.unique(words, return_inverse=True)
    names: dict[str, int] = {}
    lines = []
    for word in distinct.tolist():
        file, line = place_of(word & (1 << _CODE_BITS) - 1, word >> _CODE_BITS)
        known = f"{PurePath(file).name}:{line}" if file is not None else None
        lines.append(-1 if known is None else names.setdefault(known, len(names)))
    return tuple(names), np.array(lines, "<i8")[number_of.reshape(-1)]


def _looked_up(keys: NDArray[Any], values: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Return the value of each wanted key; keys and values belong together."""
    if not len(keys):
        return np.full(len(wanted), -1)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][places] == wanted, values[order][places], -1)


class _Uses:
    """The records of arguments, one item of each array for each record.

    ``text_of``: an index into ``texts``. ``moved``: the bytes that the task reads and writes.
    """

    def __init__(self, records: NDArray[Any], kinds: NDArray[Any]) -> None:
        numbers = (records["a"] >> _KIND_SHIFT).astype("<i8")
        known = numbers < len(kinds)  # the driver has a limit of kinds
        numbers, records = numbers[known], records[known]
        self.tasks = (records["a"] & _TASK).astype("<i8")
        self.address = records["b"].astype("<i8")
        self.kinds = kinds[numbers]
        inside = np.arange(5) < self.kinds["ndims"][:, None]
        elements = np.where(inside, self.kinds["shapes"], 1).astype("<i8").prod(axis=1)
        self.size = TYPE_BYTES[self.kinds["dtype"]]
        self.bytes = elements * self.size
        tags = self.kinds["tag"]
        self.moved = self.bytes * np.where(tags == INOUT, 2, np.where(tags == NO_DEP, 0, 1))
        texts: dict[str, int] = {}
        number_of = [texts.setdefault(_text(kind), len(texts)) for kind in kinds]
        self.texts = tuple(texts)
        self.text_of = np.array(number_of, "<i8")[numbers]

    @staticmethod
    def of(records: NDArray[Any], kinds: NDArray[Any]) -> _Uses:
        return _Uses(records[records["event"] == Event.ARGUMENT], kinds)


def _text(kind: Any) -> str:
    shape = " x ".join(map(str, kind["shapes"][: kind["ndims"]].tolist())) or "scalar"
    return f"{TAGS[kind['tag']]} {TYPES[kind['dtype']]} {shape}"


def _arguments(used: _Uses, submitted: set[int]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the argument of each record, and the names of buffers."""
    found = np.zeros(len(used.tasks), ARGUMENT)
    found["text"], found["owner"] = used.text_of, -1
    found["buffer"], begins, ranges = _ranges(used)
    heap, allocations = _Heap(), 0
    columns = [used.tasks, used.address, used.bytes, used.size]
    columns += [used.kinds["is_allocated"], used.kinds["child_memory"]]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (task, address, nbytes, size, is_allocated, on_child) in enumerate(rows):
        if is_allocated and task in submitted:
            heap.add(address, address + nbytes, (task, 0))
        elif is_allocated:
            heap.add(address, address + nbytes, (-1, ranges + allocations))
            allocations += 1
        block = None if on_child else heap.find(address)
        if block is not None:
            begins[number] = block[0]
            found["owner"][number], found["buffer"][number] = block[1]
        found["offset"][number] = (address - begins[number]) // size
    return found, _renumbered(found, used.kinds["child_memory"] != 0, ranges)


def _renumbered(found: NDArray[Any], on_child: NDArray[Any], ranges: int) -> tuple[str, ...]:
    """Number the buffers of which the owner is unknown from 0, and return their names."""
    unowned = found["owner"] < 0
    used, number_of = np.unique(found["buffer"][unowned], return_inverse=True)
    found["buffer"][~unowned] = 0
    found["buffer"][unowned] = number_of.reshape(-1)
    on_chip = bool((on_child & unowned).any())  # then it is the first one
    host = int((used < ranges).sum()) - on_chip
    names = ["memory of a chip"] * on_chip + [f"memory {number}" for number in range(host)]
    return (*names, *(f"alloc {number}" for number in (used[used >= ranges] - ranges).tolist()))


def _ranges(used: _Uses) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the range of addresses of each argument, its begin, and the number of ranges.

    Arguments that overlap or touch are in one range, and so are all those in memory of chips.
    """
    on_child = used.kinds["child_memory"] != 0
    begins = np.where(on_child, -1, used.address)
    order = np.argsort(begins, kind="stable")
    ends = np.maximum.accumulate((begins + np.where(on_child, 0, used.bytes))[order])
    is_first = np.ones(len(order), bool)
    is_first[1:] = begins[order][1:] > ends[:-1]
    number_of = np.zeros(len(order), "<i8")
    number_of[order] = np.cumsum(is_first) - 1
    firsts = begins[order][is_first]
    first_of = firsts[number_of] if len(firsts) else firsts
    return number_of, np.where(on_child, used.address, first_of), len(firsts)


class _Heap:
    """The blocks that were allocated last at each address, in the order of time."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._blocks: dict[int, tuple[int, tuple[int, int]]] = {}

    def add(self, begin: int, end: int, value: tuple[int, int]) -> None:
        """Add a block. The blocks that it overlaps were freed before."""
        first = bisect_left(self._begins, begin)
        if first and self._blocks[self._begins[first - 1]][0] > begin:
            first -= 1
        last = bisect_left(self._begins, max(end, begin + 1))
        for old in self._begins[first:last]:
            del self._blocks[old]
        self._begins[first:last] = [begin]
        self._blocks[begin] = (end, value)

    def find(self, address: int) -> tuple[int, tuple[int, int]] | None:
        """Return the begin and the value of the block that contains an address, or None."""
        place = bisect_right(self._begins, address) - 1
        if place < 0:
            return None
        begin = self._begins[place]
        end, value = self._blocks[begin]
        return (begin, value) if address < end else None
