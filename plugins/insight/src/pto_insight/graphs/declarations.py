"""Differences between what tasks declare and the bytes that they really access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain

from pto_insight.graphs.byte_set import ByteSet
from pto_insight.graphs.findings import Mismatch
from pto_insight.graphs.logged_graph import LoggedGraph
from pto_insight.graphs.measurement import (
    Measurement,
    NamedBuffer,
    OutsideAccess,
    PageAccess,
    view_ranges,
)
from pto_insight.graphs.places import INPUT, OUTPUT, OUTPUT_EXISTING

# An access that misses a buffer by more than its size, and by more than this, has a wrong address.
_NEAR_BYTES = 4096
_NO_BUFFER = NamedBuffer("", 0, 0, -1)


class Declarations:
    """Compares the declarations of tasks with their measured accesses."""

    def __init__(self, graph: LoggedGraph, measurement: Measurement) -> None:
        self._graph = graph
        self._log = graph.log
        self._measurement = measurement
        self._views = lru_cache(maxsize=1024)(self._find_views)
        self._writable = lru_cache(maxsize=1024)(self._find_writable)

    def tags(self, task: int, buffer: NamedBuffer, shared: ByteSet) -> list[str]:
        """Return the tags of the views of a task that have some of these bytes."""
        begin, end = shared.hull
        return [
            self._graph.tag(access)
            for access, view in self._views(task)
            if self._measurement.buffer_of_access(access) == buffer and view.within(begin, end)
        ]

    def outside(self) -> Iterator[Mismatch]:
        """Find bytes that are in no buffer that the task names."""
        found: dict[tuple[int, bool, NamedBuffer], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.outside_of_buffers:
            buffer = self._missed_buffer(access) or _NO_BUFFER
            found[access.task, access.is_write, buffer].add(access.begin, access.end)
        for (task, is_write, buffer), outside in found.items():
            verb = "writes" if is_write else "reads"
            why = f"{buffer.name} has {buffer.end - buffer.begin} bytes"
            if buffer is _NO_BUFFER:
                why = "far from every buffer of the task; the address may be wrong"
            if task in self._measurement.measured_by_pages:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, buffer, outside, verb, why)
        yield from self._outside_of_views()

    def _missed_buffer(self, access: OutsideAccess) -> NamedBuffer | None:
        """Return the buffer of the task that an access probably missed: the next one, if near."""

        def distance(buffer: NamedBuffer) -> int:
            return max(buffer.begin - access.end, access.begin - buffer.end)

        buffers = self._measurement.buffers_of_task(access.task)
        near = min(buffers, key=distance, default=None)
        if near is None or distance(near) > max(near.end - near.begin, _NEAR_BYTES):
            return None
        return near

    def _outside_of_views(self) -> Iterator[Mismatch]:
        """Find bytes of a buffer that the task names, but that are in none of its views."""
        found: dict[tuple[int, NamedBuffer, bool], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.outside_of_views:
            found[access.task, access.buffer, access.is_write].add(access.begin, access.end)
        for page in self._measurement.page_accesses:
            if not self._is_outside_of_views(page):
                continue
            for buffer in self._buffers_in_page(page):
                for part in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    found[page.task, buffer, page.is_write].add(*part)
        for (task, buffer, is_write), outside in found.items():
            places = [
                self._graph.places.of(access).text
                for access, _ in self._views(task)
                if self._measurement.buffer_of_access(access) == buffer
            ]
            noun = "region" if len(places) == 1 else "regions"
            why = f"outside of its declared {noun} {' and '.join(dict.fromkeys(places))}"
            verb = "writes" if is_write else "reads"
            if task in self._measurement.measured_by_pages:
                verb, why = f"{verb} some", f"{why}; known by pages"
            yield self._mismatch(task, buffer, outside, verb, why)

    def _is_outside_of_views(self, page: PageAccess) -> bool:
        """Return whether a page has bytes of buffers of the task, but none of its views."""
        if not self._log.has_accesses or not self._buffers_in_page(page):
            return False
        return not any(view.within(page.begin, page.end) for _, view in self._views(page.task))

    def undeclared(self) -> Iterator[Mismatch]:
        """Find bytes that a task writes although it declares them as input, or inputs of a run."""
        found: dict[tuple[int, NamedBuffer], ByteSet] = defaultdict(ByteSet)
        for access in self._measurement.byte_accesses:
            if not access.is_write or access.task not in self._measurement.measured_by_bytes:
                continue
            if self._log.has_accesses:
                wrong = self._writable(access.task).missing(access.begin, access.end)
            else:
                wrong = [(access.begin, access.end)] if self._is_input(access.buffer) else []
            for begin, end in wrong:
                found[access.task, access.buffer].add(begin, end)
        for page in self._measurement.page_accesses:
            buffers = self._buffers_in_page(page)
            is_known = self._may_write(page, buffers) or self._is_outside_of_views(page)
            if not page.is_write or is_known:
                continue
            for buffer in buffers:
                for begin, end in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    found[page.task, buffer].add(begin, end)
        why = "declared as input" if self._log.has_accesses else "an input of the run"
        for (task, buffer), written in found.items():
            if task in self._measurement.measured_by_pages:
                coarse = f"{why}; known by pages"
                yield self._mismatch(task, buffer, written, "writes some", coarse)
            else:
                yield self._mismatch(task, buffer, written, "writes", why)

    def unwritten_outputs(self) -> Iterator[Mismatch]:
        """Find bytes of the run's arguments that are declared as outputs and that no task writes.

        A task may leave them to another task, so the last task that declares them is reported. A
        heap buffer may be larger than what is needed: only reads of its other bytes are wrong.
        """
        written: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
        for access in chain(self._measurement.byte_accesses, self._measurement.outside_of_views):
            if access.is_write and access.task not in self._measurement.measured_by_pages:
                written[access.buffer].add(access.begin, access.end)
        for page in self._measurement.page_accesses:
            for buffer in self._buffers_in_page(page) if page.is_write else ():
                for part in ByteSet([page[1:3]]).within(buffer.begin, buffer.end):
                    written[buffer].add(*part)
        found = []
        for task in sorted(self._measurement.measured, reverse=True):
            for declared, view in self._views(task):
                tag = self._log.accesses["tag"][declared]
                buffer = self._measurement.buffer_of_access(declared)
                if tag not in (OUTPUT, OUTPUT_EXISTING) or buffer.owner >= 0:
                    continue
                known = written[buffer]
                rest = ByteSet(gap for part in view for gap in known.missing(*part))
                if len(rest):
                    why = f"declared {self._graph.tag(declared)}"
                    found.append(self._mismatch(task, buffer, rest, "does not write", why))
                    for begin, end in rest:
                        known.add(begin, end)
        yield from reversed(found)
        if not self._log.has_accesses:
            yield from self._unwritten_results(written)

    def _unwritten_results(self, written: Mapping[NamedBuffer, ByteSet]) -> Iterator[Mismatch]:
        """Find bytes of outputs of the run that no task writes, if tasks declare nothing."""
        known_tasks = {access.task for access in self._measurement.byte_accesses}
        if len(known_tasks | self._measurement.measured) < len(self._graph):
            return  # the accesses of some tasks are not known
        known = ByteSet(part for parts in written.values() for part in parts)
        for name, address, output in self._measurement.buffers.outputs():
            rest = ByteSet(gap for part in output for gap in known.missing(*part))
            if len(rest):
                begin, end = (at - address for at in rest.hull)
                why = "an output of the run"
                yield Mismatch(None, name, begin, end, len(rest), "writes", why)

    def uninitialised_reads(self) -> Iterator[Mismatch]:
        """Find bytes that a task reads and that neither the run nor an earlier task wrote."""
        undefined = lru_cache(maxsize=None)(self._undefined)
        written: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
        by_task: dict[int, list[tuple[bool, NamedBuffer, int, int]]] = defaultdict(list)
        outside = (access for access in self._measurement.outside_of_views if access.is_write)
        for access in chain(self._measurement.byte_accesses, outside):
            if access.task in self._measurement.measured_by_pages and not access.is_write:
                continue
            if undefined(access.buffer).within(access.begin, access.end):
                by_task[access.task].append((access.is_write, *access[1:4]))
        for task, accesses in by_task.items():
            wrong: dict[NamedBuffer, ByteSet] = defaultdict(ByteSet)
            for is_write, buffer, begin, end in sorted(accesses):
                if is_write:
                    written[buffer].add(begin, end)
                    continue
                for part in undefined(buffer).within(begin, end):
                    for low, high in written[buffer].missing(*part):
                        wrong[buffer].add(low, high)
            for buffer, unknown in wrong.items():
                yield self._mismatch(task, buffer, unknown, "reads", "no earlier task wrote them")

    def _undefined(self, buffer: NamedBuffer) -> ByteSet:
        """Return the bytes of a buffer that have no content before the first task."""
        if buffer.owner >= 0:
            return ByteSet([(buffer.begin, buffer.end)])
        return self._measurement.buffers.undefined(buffer.begin, buffer.end)

    def _is_input(self, buffer: NamedBuffer) -> bool:
        """Return whether a buffer is an argument of the run that is not copied back."""
        return self._measurement.buffers.is_input(buffer.begin, buffer.end)

    def _buffers_in_page(self, page: PageAccess) -> list[NamedBuffer]:
        """Return the buffers of a task that have bytes in a page."""
        return [
            buffer
            for buffer in self._measurement.buffers_of_task(page.task)
            if buffer.begin < page.end and page.begin < buffer.end
        ]

    def _may_write(self, page: PageAccess, buffers: list[NamedBuffer]) -> bool:
        """Return whether a task may write some of the bytes of a page, or no buffer is there."""
        if not buffers:
            return True
        if self._log.has_accesses:
            return bool(self._writable(page.task).within(page.begin, page.end))
        return not all(map(self._is_input, buffers))

    def _find_views(self, task: int) -> list[tuple[int, ByteSet]]:
        """Return the accesses that a task declares, with their bytes."""
        rows = self._log.accesses
        accesses = self._measurement.declared_accesses(task)
        return [(access, ByteSet(view_ranges(rows[access]))) for access in accesses]

    def _find_writable(self, task: int) -> ByteSet:
        """Return the bytes that a task may write; NO_DEP permits everything."""
        tags = self._log.accesses["tag"]
        views = (view for access, view in self._views(task) if tags[access] != INPUT)
        return ByteSet(part for view in views for part in view)

    def _mismatch(
        self, task: int, buffer: NamedBuffer, found: ByteSet, verb: str, why: str
    ) -> Mismatch:
        begin, end = (at - buffer.begin for at in found.hull)
        return Mismatch(self._graph.task(task), buffer.name, begin, end, len(found), verb, why)
