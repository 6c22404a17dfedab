"""Differences between what tasks declare and the bytes that they really touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain

from pto_core.graphs.byte_set import ByteSet
from pto_core.graphs.findings import Mismatch
from pto_core.graphs.logged_graph import LoggedGraph
from pto_core.graphs.measurement import Measurement, Memory, Page, runs_of
from pto_core.graphs.places import INPUT, OUTPUT, OUTPUT_EXISTING


class Declarations:
    """Compares the declarations of tasks with their measured accesses."""

    def __init__(self, graph: LoggedGraph, measurement: Measurement) -> None:
        self._graph = graph
        self._log = graph.log
        self._measurement = measurement
        self._views = lru_cache(maxsize=1024)(self._find_views)
        self._writable = lru_cache(maxsize=1024)(self._find_writable)

    def tags(self, task: int, memory: Memory, shared: ByteSet) -> list[str]:
        """Return the tags of the views of a task that have some of these bytes."""
        begin, end = shared.hull
        return [
            self._graph.tag(access)
            for access, view in self._views(task)
            if self._measurement.memory_of(access) == memory and view.within(begin, end)
        ]

    def outside(self) -> Iterator[Mismatch]:
        """Find bytes that are in no buffer that the task names."""
        found: dict[tuple[int, bool], ByteSet] = defaultdict(ByteSet)
        for stray in self._measurement.strays:
            found[stray.task, stray.is_write].add(stray.begin, stray.end)
        for (task, is_write), strays in found.items():
            begin = strays.hull[0]
            memory = min(
                self._measurement.memories_of(task),
                key=lambda memory: max(memory.begin - begin, begin - memory.end + 1),
                default=None,
            )
            verb = "writes" if is_write else "reads"
            if memory is None:
                memory, why = Memory("device memory", begin, begin, -1), "it has no such argument"
            else:
                why = f"{memory.name} has {memory.end - memory.begin} bytes"
            if task in self._measurement.paged:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, memory, strays, verb, why)
        yield from self._outside_of_views()

    def _outside_of_views(self) -> Iterator[Mismatch]:
        """Find bytes of a buffer that the task names, but that are in none of its views."""
        found: dict[tuple[int, Memory, bool], ByteSet] = defaultdict(ByteSet)
        for touch in self._measurement.outside_of_views:
            found[touch.task, touch.memory, touch.is_write].add(touch.begin, touch.end)
        for page in self._measurement.pages:
            if not self._is_outside_of_views(page):
                continue
            for memory in self._memories_of(page):
                for run in ByteSet([page[1:3]]).within(memory.begin, memory.end):
                    found[page.task, memory, page.is_write].add(*run)
        for (task, memory, is_write), runs in found.items():
            places = [
                self._graph.places.of(access).text
                for access, _ in self._views(task)
                if self._measurement.memory_of(access) == memory
            ]
            noun = "region" if len(places) == 1 else "regions"
            why = f"outside of its declared {noun} {' and '.join(dict.fromkeys(places))}"
            verb = "writes" if is_write else "reads"
            if task in self._measurement.paged:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, memory, runs, verb, why)

    def _is_outside_of_views(self, page: Page) -> bool:
        """Return whether a page has bytes of buffers of the task, but none of its views."""
        if not self._log.has_accesses or not self._memories_of(page):
            return False
        return not any(view.within(page.begin, page.end) for _, view in self._views(page.task))

    def undeclared(self) -> Iterator[Mismatch]:
        """Find bytes that a task writes although it declares them as input, or inputs of a run."""
        found: dict[tuple[int, Memory], ByteSet] = defaultdict(ByteSet)
        for touch in self._measurement.touches:
            if not touch.is_write or touch.task not in self._measurement.measured:
                continue
            if self._log.has_accesses:
                wrong = self._writable(touch.task).missing(touch.begin, touch.end)
            else:
                wrong = [(touch.begin, touch.end)] if self._is_input(touch.memory) else []
            for begin, end in wrong:
                found[touch.task, touch.memory].add(begin, end)
        for page in self._measurement.pages:
            memories = self._memories_of(page)
            is_known = self._may_write(page, memories) or self._is_outside_of_views(page)
            if not page.is_write or is_known:
                continue
            for memory in memories:
                for begin, end in ByteSet([page[1:3]]).within(memory.begin, memory.end):
                    found[page.task, memory].add(begin, end)
        why = "declared as input" if self._log.has_accesses else "an input of the run"
        for (task, memory), written in found.items():
            if task in self._measurement.paged:
                paged = f"{why}; known by pages"
                yield self._mismatch(task, memory, written, "writes some", paged)
            else:
                yield self._mismatch(task, memory, written, "writes", why)

    def unwritten_outputs(self) -> Iterator[Mismatch]:
        """Find bytes of the run's arguments that are declared as outputs and that no task writes.

        A task may leave them to another task, so the last task that declares them is reported. A
        heap buffer may be larger than what is needed: only reads of its other bytes are wrong.
        """
        written: dict[Memory, ByteSet] = defaultdict(ByteSet)
        for touch in chain(self._measurement.touches, self._measurement.outside_of_views):
            if touch.is_write and touch.task not in self._measurement.paged:
                written[touch.memory].add(touch.begin, touch.end)
        for page in self._measurement.pages:
            for memory in self._memories_of(page) if page.is_write else ():
                for run in ByteSet([page[1:3]]).within(memory.begin, memory.end):
                    written[memory].add(*run)
        found = []
        known_tasks = self._measurement.measured | self._measurement.paged
        for task in sorted(known_tasks, reverse=True):
            for access, view in self._views(task):
                tag = self._log.accesses["tag"][access]
                memory = self._measurement.memory_of(access)
                if tag not in (OUTPUT, OUTPUT_EXISTING) or memory.owner >= 0:
                    continue
                known = written[memory]
                rest = ByteSet(part for run in view for part in known.missing(*run))
                if len(rest):
                    why = f"declared {self._graph.tag(access)}"
                    found.append(self._mismatch(task, memory, rest, "does not write", why))
                    for begin, end in rest:
                        known.add(begin, end)
        yield from reversed(found)
        if not self._log.has_accesses:
            yield from self._unwritten_results(written)

    def _unwritten_results(self, written: Mapping[Memory, ByteSet]) -> Iterator[Mismatch]:
        """Find bytes of outputs of the run that no task writes, if tasks declare nothing."""
        touching = {touch.task for touch in self._measurement.touches}
        if len(touching | self._measurement.measured | self._measurement.paged) < len(self._graph):
            return  # the accesses of some tasks are not known
        known = ByteSet(run for runs in written.values() for run in runs)
        for name, address, output in self._measurement.buffers.outputs():
            rest = ByteSet(part for run in output for part in known.missing(*run))
            if len(rest):
                begin, end = (at - address for at in rest.hull)
                why = "an output of the run"
                yield Mismatch(None, name, begin, end, len(rest), "writes", why)

    def uninitialised_reads(self) -> Iterator[Mismatch]:
        """Find bytes that a task reads and that neither the run nor an earlier task wrote."""
        undefined = lru_cache(maxsize=None)(self._undefined)
        written: dict[Memory, ByteSet] = defaultdict(ByteSet)
        by_task: dict[int, list[tuple[bool, Memory, int, int]]] = defaultdict(list)
        outside = (touch for touch in self._measurement.outside_of_views if touch.is_write)
        for touch in chain(self._measurement.touches, outside):
            if touch.task in self._measurement.paged and not touch.is_write:
                continue
            if undefined(touch.memory).within(touch.begin, touch.end):
                by_task[touch.task].append((touch.is_write, *touch[1:4]))
        for task, touches in by_task.items():
            wrong: dict[Memory, ByteSet] = defaultdict(ByteSet)
            for is_write, memory, begin, end in sorted(touches):
                if is_write:
                    written[memory].add(begin, end)
                    continue
                for part in undefined(memory).within(begin, end):
                    for low, high in written[memory].missing(*part):
                        wrong[memory].add(low, high)
            for memory, unknown in wrong.items():
                yield self._mismatch(task, memory, unknown, "reads", "no earlier task wrote them")

    def _undefined(self, memory: Memory) -> ByteSet:
        """Return the bytes of a buffer that have no content before the first task."""
        if memory.owner >= 0:
            return ByteSet([(memory.begin, memory.end)])
        return self._measurement.buffers.undefined(memory.begin, memory.end)

    def _is_input(self, memory: Memory) -> bool:
        """Return whether a buffer is an argument of the run that is not copied back."""
        return self._measurement.buffers.is_input(memory.begin, memory.end)

    def _memories_of(self, page: Page) -> list[Memory]:
        """Return the buffers of a task that have bytes in a page."""
        return [
            memory
            for memory in self._measurement.memories_of(page.task)
            if memory.begin < page.end and page.begin < memory.end
        ]

    def _may_write(self, page: Page, memories: list[Memory]) -> bool:
        """Return whether a task may write some of the bytes of a page, or no buffer is there."""
        if not memories:
            return True
        if self._log.has_accesses:
            return bool(self._writable(page.task).within(page.begin, page.end))
        return not all(map(self._is_input, memories))

    def _find_views(self, task: int) -> list[tuple[int, ByteSet]]:
        """Return the accesses that a task declares, with their bytes."""
        rows = self._log.accesses
        accesses = self._measurement.accesses_of(task)
        return [(access, ByteSet(runs_of(rows[access]))) for access in accesses]

    def _find_writable(self, task: int) -> ByteSet:
        """Return the bytes that a task may write; NO_DEP permits everything."""
        tags = self._log.accesses["tag"]
        views = (view for access, view in self._views(task) if tags[access] != INPUT)
        return ByteSet(run for view in views for run in view)

    def _mismatch(self, task: int, memory: Memory, found: ByteSet, verb: str, why: str) -> Mismatch:
        begin, end = (at - memory.begin for at in found.hull)
        return Mismatch(self._graph.task(task), memory.name, begin, end, len(found), verb, why)
