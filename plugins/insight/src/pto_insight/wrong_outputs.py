"""Explain a wrong output: the task that wrote its first wrong element, and the first wrong task.

The first wrong task is the first task whose own output differs from its reference.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pto_core.cases.report import OutputReport
from pto_core.errors import PtoError
from pto_insight.graphs import AccessLog, TaskGraph
from pto_insight.graphs.log import BUFFER, WRITE, Rows
from pto_insight.graphs.measurement import ByteSet, Range, task_and_block_of_id, view_ranges
from pto_insight.graphs.places import INPUT, NO_DEP, element_bytes

_MOST_RACES = 3
_MOST_HOST_WRITES = 8


def explain_wrong(log: AccessLog, output: OutputReport, element_bytes: int) -> str:
    """Return a note about the last writers of the first wrong element of an output.

    ``log``: the access log of another run on the same inputs. Measured accesses decide, if it has
    them; otherwise declarations.
    """
    assert output.first_index is not None, "the output is wrong"
    strides = [math.prod(output.shape[dim + 1 :]) for dim in range(len(output.shape))]
    flat = sum(at * step for at, step in zip(output.first_index, strides, strict=True))
    writers = TaskGraph(log).last_writers(output.name, flat * element_bytes)
    element = f"{output.name}[{', '.join(map(str, output.first_index))}]"
    if not writers:
        verb = "writes" if log.is_measured else "declares that it writes"
        return f"no task {verb} {element}"
    uncertain = [writer for writer in writers if not writer.is_certain]
    hidden = uncertain[:-_MOST_HOST_WRITES]
    lines = [f"  {writer}" for writer in writers if writer not in hidden]
    if hidden:
        lines.append(f"  and {len(hidden)} earlier calls of set_tensor_data")
    if uncertain:
        begin = (
            f"{element} can have been last written by each of these; set_tensor_data sets one "
            "element, and its index is not recorded"
        )
    elif len(writers) == 1:
        begin = f"{element} was last written by"
    else:
        begin = f"{element} was written by {len(writers)} tasks that nothing orders:"
    return "\n".join([begin, *lines])


def not_measured(runtime: str, error: PtoError) -> str:
    """Return a note for a wrong output of which the writers are not known."""
    return (
        f"the tasks that wrote the wrong element are not known: tasks of {runtime} declare "
        f"nothing, and their accesses could not be measured: {error}"
    )


def explain_unsteady(log: AccessLog, *, has_seed: bool) -> str:
    """Return a note about a result that is right in a second run on the same inputs.

    With a seed, the order of the tasks was the same in both runs.
    """
    findings = TaskGraph(log).check()
    races = [*findings.races, *findings.declared][:_MOST_RACES]
    found = "\n".join(map(str, races)) or _no_race(log)
    if has_seed:
        return (
            "a second run on the same inputs, with the same order of tasks, is right: the result "
            f"depends on what the first run left, such as static data of a kernel\n{found}"
        )
    return f"the result is not deterministic: a second run on the same inputs is right\n{found}"


def _no_race(log: AccessLog) -> str:
    if log.is_measured:
        return "no tasks race by the bytes that they touched in a measured run"
    return "no tasks race by what they declare; check the kernels"


Judge = Callable[[Any, Any], OutputReport]
"""Compares an array with its reference."""
References = Mapping[str, list[list[Any]]]
"""For each kernel, for each of its tasks, for each output: an array, or None."""

_PAGE = 1 << 16


def explain_intermediates(log: AccessLog, references: References, judge: Judge) -> str:
    """Return a note that names the first wrong output of a task, in the order of submits.

    ``log``: the log of a measured run that kept the written bytes.
    """
    graph = TaskGraph(log)
    wanted: dict[int, list[Any]] = {}
    tasks_of: dict[str, list[int]] = defaultdict(list)
    for task in graph.tasks:
        tasks_of[task.kernel].append(task.index)
    for kernel, given in references.items():
        tasks = tasks_of.get(kernel, [])
        if len(given) > len(tasks):
            known = ", ".join(f"{name} ({len(found)} tasks)" for name, found in tasks_of.items())
            return (
                f"compute_intermediates has references for {len(given)} tasks of {kernel!r}, which "
                f"runs {len(tasks)}; kernels: {known}"
            )
        wanted.update(zip(tasks, given, strict=False))
    found = _Replay(graph, judge).compared(wanted)
    right = 0
    for task_index, outputs in sorted(found.items()):
        for output, problem in outputs:
            if problem is not None:
                label, where = graph.task(task_index).label, graph.task(task_index).where
                earlier = "1 reference" if right == 1 else f"{right} references"
                return (
                    f"the first wrong intermediate is output {output} of {label}: {problem}"
                    f"{'  ' + where if where else ''}\n  before it, {earlier} agreed"
                )
            right += 1
    if not right:
        return "no intermediate was compared: no task with a reference reported what it wrote"
    return f"all {right} intermediates with a reference are right"


class _Replay:
    """The memory of the device, written again in the order in which the tasks ended."""

    def __init__(self, graph: TaskGraph, judge: Judge) -> None:
        self._graph = graph
        self._log = graph.log
        self._judge = judge
        self._pages: dict[int, tuple[Any, Any]] = {}  # the bytes, and which of them are known

    def compared(self, wanted: Mapping[int, list[Any]]) -> dict[int, list[tuple[int, str | None]]]:
        """Return the compared outputs of tasks, each with its problem or None."""
        task_of = task_and_block_of_id(self._log)
        rows = self._log.measured
        rows = rows[np.isin(rows["kind"], (WRITE, BUFFER))]
        tasks = [task_of[row][0] for row in rows["task"].tolist()]
        last = {task: number for number, task in enumerate(tasks)}
        written: dict[int, list[Range]] = defaultdict(list)
        buffers: dict[int, list[Range]] = defaultdict(list)
        found = {}
        at = 0
        for number, (task, row) in enumerate(zip(tasks, rows.tolist(), strict=True)):
            _, begin, end, kind, _ = row
            if kind == BUFFER:
                buffers[task].append((begin, end))
            else:
                if at + end - begin > len(self._log.written):
                    break  # the run kept no more bytes
                self._write(begin, np.frombuffer(self._log.written, np.uint8, end - begin, at))
                at += end - begin
                written[task].append((begin, end))
            if last[task] == number and task in wanted:
                outputs = self._outputs(task, written[task], buffers[task])
                found[task] = list(self._judged(outputs, wanted[task]))
        return found

    def _outputs(
        self, task: int, written: list[Range], buffers: list[Range]
    ) -> list[tuple[Any, Any]]:
        """Return the bytes of each output of a task, and which of them are known.

        If tasks declare nothing, an output is what the task wrote in the buffer of an argument.
        """
        if not self._log.has_accesses:
            bytes_ = ByteSet(written)
            inside = [bytes_.within(*buffer) for buffer in dict.fromkeys(buffers)]
            return [self._read([(part[0][0], part[-1][1])]) for part in inside if part]
        first = int(self._log.tasks[task - 1]["accesses"]) if task else 0
        rows = self._log.accesses[first : int(self._log.tasks[task]["accesses"])]
        rows = rows[~np.isin(rows["tag"], (INPUT, NO_DEP)) & (rows["is_pipe"] == 0)]
        return [self._view(row) for row in rows]

    def _view(self, row: Rows) -> tuple[Any, Any]:
        """Return the bytes of a view in the order of its dimensions."""
        dims = range(int(row["ndims"]))
        in_memory = sorted(dims, key=lambda dim: int(row["order"][dim]))
        shape = [int(row["shapes"][dim]) for dim in in_memory]
        axes = [*(in_memory.index(dim) for dim in dims), len(dims)]
        content, known = (
            part.reshape(*shape, element_bytes(row)).transpose(axes).reshape(-1)
            for part in self._read(view_ranges(row))
        )
        return content, known

    def _judged(
        self, outputs: list[tuple[Any, Any]], wanted: list[Any]
    ) -> Iterator[tuple[int, str | None]]:
        if len(wanted) > len(outputs):
            yield len(outputs), f"the task has {len(outputs)} outputs, not {len(wanted)}"
            return
        for number, ((content, known), reference) in enumerate(zip(outputs, wanted, strict=False)):
            if reference is None:
                continue
            if len(content) != reference.nbytes:
                yield (
                    number,
                    f"it has {len(content)} bytes, its reference {reference.nbytes} "
                    f"({reference.dtype} {reference.shape})",
                )
                continue
            size = reference.dtype.itemsize
            actual = content.view(reference.dtype)
            is_known = known.reshape(-1, size).all(axis=1)
            if not is_known.any():
                continue
            actual = np.where(is_known, actual, reference.reshape(-1)).reshape(reference.shape)
            report = self._judge(actual, reference)
            yield number, _difference(report) if report.mismatches else None

    def _write(self, begin: int, content: Any) -> None:
        for page, inside, part in _pieces(begin, begin + len(content)):
            data, known = self._pages.setdefault(
                page, (np.zeros(_PAGE, np.uint8), np.zeros(_PAGE, bool))
            )
            data[inside], known[inside] = content[part], True

    def _read(self, ranges: list[Range]) -> tuple[Any, Any]:
        size = sum(end - begin for begin, end in ranges)
        content, is_known = np.zeros(size, np.uint8), np.zeros(size, bool)
        at = 0
        for begin, end in ranges:
            for page, inside, part in _pieces(begin, end):
                if page in self._pages:
                    place = slice(at + part.start, at + part.stop)
                    content[place], is_known[place] = (each[inside] for each in self._pages[page])
            at += end - begin
        return content, is_known


def _pieces(begin: int, end: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the pages of a range: the number, the bytes in the page, and those in the range."""
    at = begin
    while at < end:
        page, offset = divmod(at, _PAGE)
        size = min(end - at, _PAGE - offset)
        yield page, slice(offset, offset + size), slice(at - begin, at - begin + size)
        at += size


def _difference(report: OutputReport) -> str:
    place = ", ".join(map(str, report.first_index or ()))
    return (
        f"wrong in {report.mismatches} of {report.total} elements; first at [{place}]: got "
        f"{report.first_actual!r}, expected {report.first_expected!r}"
    )
