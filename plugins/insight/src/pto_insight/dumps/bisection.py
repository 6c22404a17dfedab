"""Find the first task whose output differs between two runs of a case.

Both runs keep a 64-bit hash of each output of each task. The tasks of both runs are matched. Those
with other hashes are dumped in further runs, in the order of submits, until one of them differs by
more than the tolerance of the case. On a simulator, these runs have the same order of events:

    hashes of A and B -> pairs of tasks -> tasks with other hashes -> dumps of 1, 15, 240 of them

If the arguments of a task are addresses, its outputs are the whole buffers, and other tasks may
change them. So an argument counts only if its hash before the call was the same in both runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.cases.golden import compare
from pto_core.cases.report import OutputReport
from pto_core.errors import UsageError
from pto_insight.dumps.task_dump import TaskDump
from pto_insight.dumps.text import is_untyped, typed
from pto_insight.graphs import AccessLog, TaskGraph
from pto_insight.graphs.analysis import NO_ACCESS, Why
from pto_insight.graphs.measurement import task_and_block_of_id
from pto_insight.graphs.places import INPUT, NO_DEP

_BATCHES = (1, 15, 240)
_MOST_HOST_WRITES = 8
EQUAL, WITHIN = "equal", "equal within the tolerance"
DIFFERENT, RESIZED, SKIPPED = "different", "of another size", "not compared"


@dataclass
class Call:
    """The calls of a task, one for each block.

    ``ids``: in the order in which they ended. ``hashes``: size, hash before the first call that
    ended and after the last one, by argument.
    """

    ids: list[int] = field(default_factory=list)
    hashes: dict[int, tuple[int, int, int]] = field(default_factory=dict)


def calls_of(log: AccessLog, rows: NDArray[Any]) -> dict[int, Call]:
    """Return the calls by the index of the task, from the rows of :func:`take_hashes`."""
    task_of = task_and_block_of_id(log)
    calls: dict[int, Call] = {}
    for before, after, argument, task_id, size in rows.tolist():
        call = calls.setdefault(task_of[task_id][0], Call())
        call.ids = [one for one in call.ids if one != task_id] + [task_id]
        earlier = call.hashes.get(argument)
        call.hashes[argument] = (size, earlier[1] if earlier else before, after)
    return calls


@dataclass(frozen=True)
class Side:
    """One of the two runs. ``dump``: runs it again, and returns the dumps of the last calls."""

    name: str
    graph: TaskGraph
    calls: Mapping[int, Call]
    dump: Callable[[list[int]], Mapping[int, tuple[Path, TaskDump]]]


@dataclass(frozen=True)
class Rule:
    """When two arrays are equal: the tolerance of the case. ``dtype``: the type of bytes."""

    rtol: float
    atol: float
    exact_integers: bool
    dtype: str | None = None

    def compared(
        self, name: str, one: NDArray[Any], other: NDArray[Any], *, are_bytes: bool
    ) -> OutputReport:
        """Return how ``other`` differs from ``one``, which has as many bytes.

        Bytes without a type are compared exactly.
        """
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            model = other if one.dtype == np.uint8 else one
            one, other = (
                each.reshape(-1).view(np.uint8).view(model.dtype).reshape(model.shape)
                for each in (one, other)
            )
        has_no_type = are_bytes and one.dtype == np.uint8 and self.dtype != "uint8"
        is_exact = self.exact_integers or has_no_type
        return compare(name, other, one, self.rtol, self.atol, exact_integers=is_exact)


@dataclass(frozen=True)
class Writer:
    """An earlier task on whose results a task depends, and whether its outputs are equal.

    ``place``: the memory of which an access of the orchestration wrote one element.
    """

    task: str
    where: str
    state: str
    place: str = ""


@dataclass(frozen=True)
class InputState:
    """An argument before the call. ``writers``: the tasks that wrote it, of the first run."""

    argument: int
    name: str
    state: str
    writers: tuple[Writer, ...]


@dataclass(frozen=True)
class Difference:
    """The first task that differs. ``waits_for``: the tasks to which it has an explicit edge.

    ``blocks``: 1, or the number of its blocks, of which the last one is dumped.
    """

    task: str
    where: str
    blocks: int
    outputs: tuple[OutputReport, ...]
    inputs: tuple[InputState, ...]
    waits_for: tuple[Writer, ...]
    files: tuple[str, str]


class Bisection:
    """The comparison of two runs.

    ``pairs``: the matched tasks. ``alone``: the tasks of each run without a match. ``differing``:
    the arguments with other hashes, by task. ``resized``: the tasks whose outputs have other sizes,
    which are not compared. ``skipped``: the tasks with an output that is not compared, because it
    had other bytes before the call, or is known in one run only. ``equal``: the number of tasks
    whose outputs are all compared and equal. ``within``: the tasks that are equal within the
    tolerance, as far as :meth:`find` has compared them.
    """

    def __init__(self, first: Side, second: Side, rule: Rule) -> None:
        self._first, self._second, self._rule = first, second, rule
        self.pairs = matched(first.graph.log, second.graph.log)
        partners = set(self.pairs.values())
        self.alone = (
            [task for task in sorted(first.calls) if task not in self.pairs],
            [task for task in sorted(second.calls) if task not in partners],
        )
        self.differing: dict[int, list[int]] = {}
        self.resized: list[int] = []
        self.skipped: list[int] = []
        self.equal = 0
        self.within: list[int] = []
        for task, other in self.pairs.items():
            if task in first.calls or other in second.calls:
                self._compare_hashes(task, other)

    @property
    def is_complete(self) -> bool:
        """Return whether all outputs of all tasks are compared."""
        return not (self.resized or self.skipped or any(self.alone))

    def find(self) -> Difference | None:
        """Return the first task that differs by more than the tolerance, if it is found."""
        for size in _BATCHES:
            batch = list(self.differing)[len(self.within) :][:size]
            if not batch:
                break
            first = self._first.dump(batch)
            second = self._second.dump([self.pairs[task] for task in batch])
            for task in batch:
                dumps = first[task], second[self.pairs[task]]
                outputs = tuple(self._outputs(self.differing[task], dumps[0][1], dumps[1][1]))
                if outputs:
                    return self._difference(task, outputs, *dumps)
                self.within.append(task)
        return None

    def _compare_hashes(self, task: int, other: int) -> None:
        first = self._first.calls.get(task, Call()).hashes
        second = self._second.calls.get(other, Call()).hashes
        differing, has_equal, is_resized, is_skipped = [], False, False, False
        for argument in sorted(first.keys() | second.keys()):
            one, two = first.get(argument), second.get(argument)
            if one is not None and two is not None and (one[0], one[2]) == (two[0], two[2]):
                has_equal = True
                continue
            if _is_read(self._first.graph, task, argument):
                continue
            if _is_read(self._second.graph, other, argument):
                continue
            if one is None or two is None:
                is_skipped = True
            elif one[1] and two[1] and one[1] != two[1]:
                is_skipped |= one[1] != one[2] or two[1] != two[2]  # else both runs only read it
            elif one[0] == two[0]:
                differing.append(argument)
            else:
                is_resized = True
        if differing:
            self.differing[task] = differing
        if is_resized:
            self.resized.append(task)
        if is_skipped:
            self.skipped.append(task)
        self.equal += has_equal and not (differing or is_resized or is_skipped)

    def _outputs(
        self, arguments: list[int], first: TaskDump, second: TaskDump
    ) -> Iterator[OutputReport]:
        for at in arguments:
            one, other = (self._values(dump, at, "after") for dump in (first, second))
            assert one is not None, "an output is dumped after the call"
            assert other is not None, "an output is dumped after the call"
            name = f"{at}: {first.argument(at).name or 'memory'}"
            are_bytes = _are_bytes(at, first, second)
            report = self._rule.compared(name, one, other, are_bytes=are_bytes)
            if report.mismatches:
                yield report

    def _values(self, dump: TaskDump, argument: int, phase: str) -> NDArray[Any] | None:
        return typed(dump, dump.argument(argument), phase, self._rule.dtype)

    def _difference(
        self,
        task: int,
        outputs: tuple[OutputReport, ...],
        first: tuple[Path, TaskDump],
        second: tuple[Path, TaskDump],
    ) -> Difference:
        writers = self._writers(task)
        dump = first[1]
        theirs = {one.argument for one in second[1].arguments}
        read = [one for one in dump.arguments if not one.tag.startswith("OUTPUT")]
        inputs = (
            InputState(
                one.argument,
                one.name or "memory",
                self._state_of_input(one.argument, dump, second[1]),
                tuple(writers.get(one.argument, ())),
            )
            for one in read
            if one.argument in theirs
        )
        return Difference(
            dump.label,
            dump.where,
            max(1, dump.blocks),
            outputs,
            tuple(inputs),
            tuple(writers.get(NO_ACCESS, ())),
            (str(first[0]), str(second[0])),
        )

    def _state_of_input(self, argument: int, first: TaskDump, second: TaskDump) -> str:
        one, other = (self._values(dump, argument, "before") for dump in (first, second))
        if one is None or other is None or one.nbytes != other.nbytes:
            return RESIZED
        if one.tobytes() == other.tobytes():
            return EQUAL
        are_bytes = _are_bytes(argument, first, second)
        report = self._rule.compared("", one, other, are_bytes=are_bytes)
        return DIFFERENT if report.mismatches else WITHIN

    def _writers(self, task: int) -> dict[int, list[Writer]]:
        """Return the tasks that wrote each argument; for NO_ACCESS, those of explicit edges."""
        graph = self._first.graph
        rows = graph.reason_rows
        rows = rows[rows["second"] == task]
        found: dict[int, dict[int, Writer]] = {}
        for row in rows[np.isin(rows["why"], (Why.READ, Why.EXPLICIT, Why.RETAINING))]:
            argument = access = int(row["second_access"])
            if access != NO_ACCESS:
                argument = int(graph.log.accesses[access]["parameter"])
            writer = int(row["first"])
            places = {writer: ""}
            if graph.log.is_of_host[writer]:  # edges have only the newest write of the host
                last = graph.writers_before(access, _MOST_HOST_WRITES)
                places = {one.task.index: one.place for one in last}
            for index, place in places.items():
                known, is_of_host = graph.task(index), graph.log.is_of_host[index]
                state = SKIPPED if is_of_host else self._state_of_task(index)
                found.setdefault(argument, {})[index] = Writer(
                    known.label, known.where, state, place if is_of_host else ""
                )
        return {argument: list(writers.values()) for argument, writers in found.items()}

    def _state_of_task(self, task: int) -> str:
        if task not in self.pairs:
            return f"only in {self._first.name}"
        if task in self.resized:
            return RESIZED
        if task in self.skipped:
            return SKIPPED
        if task in self.within:
            return WITHIN
        return DIFFERENT if task in self.differing else EQUAL


def matched(first: AccessLog, second: AccessLog) -> dict[int, int]:
    """Return the tasks of the second run by those of the first.

    If both runs call the same kernels in the same order, tasks are matched by their numbers.
    Otherwise they are matched by the kernel, the source line, and the occurrence of both. Raises
    UsageError if no task has a match.
    """
    if first.kernel_names == second.kernel_names:
        return {task: task for task in range(len(first.tasks))}
    partners = {key: task for task, key in enumerate(_keys(second))}
    pairs = {task: partners[key] for task, key in enumerate(_keys(first)) if key in partners}
    if not pairs:
        raise UsageError(
            f"no task of one run has a match in the other: the runs have {len(first.tasks)} and "
            f"{len(second.tasks)} tasks, and none runs the same kernel from the same source line; "
            "compare runs of the same program",
            name="against",
        )
    return pairs


def _keys(log: AccessLog) -> Iterator[tuple[str, str, int, int]]:
    occurrences: Counter[tuple[str, str, int]] = Counter()
    for kernel, file, line in zip(
        log.kernel_names, log.tasks["file"].tolist(), log.tasks["line"].tolist(), strict=True
    ):
        place = (kernel, Path(log.files[file - 1]).name if file else "", line)
        yield (*place, occurrences[place])
        occurrences[place] += 1


def _are_bytes(argument: int, *dumps: TaskDump) -> bool:
    """Return whether an argument has a type in none of the dumps."""
    return all(is_untyped(dump.argument(argument)) for dump in dumps)


def _is_read(graph: TaskGraph, task: int, argument: int) -> bool:
    """Return whether a task declares that it only reads an argument."""
    ends = graph.log.tasks["accesses"]
    rows = graph.log.accesses[int(ends[task - 1]) if task else 0 : int(ends[task])]
    tags = rows["tag"][rows["parameter"] == argument]
    return bool(np.isin(tags, (INPUT, NO_DEP)).any())
