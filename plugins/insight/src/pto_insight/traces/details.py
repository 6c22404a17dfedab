"""What each task was submitted with: source line, arguments and bytes.

For the tasks of a device this follows from the access log; for those of a Worker, from the records
of its driver.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.graphs.log import AccessLog
from pto_insight.graphs.places import INOUT, NO_DEP, TAGS, TYPE_BYTES, TYPES
from pto_insight.traces.records import Event

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
        places, place_of = _places_of(log)
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


def _places_of(log: AccessLog) -> tuple[tuple[str, ...], NDArray[Any]]:
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


# ---- the tasks of a Worker ----
#
# The record of a submit contains its position in the program. From level 2 on, records of its
# arguments follow; ``pto_core/native/worker/trace/events.hpp`` defines them.

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
"""``pto::worker::ArgumentKind``."""

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
    heap, allocations = Heap(), 0
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


class Heap:
    """The blocks that were allocated last at each address, in the order of time, with a value."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._blocks: dict[int, tuple[int, Any]] = {}

    def add(self, begin: int, end: int, value: Any) -> None:
        """Add a block. The blocks that it overlaps were freed before."""
        first = bisect_left(self._begins, begin)
        if first and self._blocks[self._begins[first - 1]][0] > begin:
            first -= 1
        last = bisect_left(self._begins, max(end, begin + 1))
        for old in self._begins[first:last]:
            del self._blocks[old]
        self._begins[first:last] = [begin]
        self._blocks[begin] = (end, value)

    def find(self, address: int) -> tuple[int, Any] | None:
        """Return the begin and the value of the block that contains an address, or None."""
        place = bisect_right(self._begins, address) - 1
        if place < 0:
            return None
        begin = self._begins[place]
        end, value = self._blocks[begin]
        return (begin, value) if address < end else None
