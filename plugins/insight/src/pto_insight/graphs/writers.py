"""The tasks that wrote an element last."""

from __future__ import annotations

from itertools import chain

import numpy as np

from pto_core.errors import UsageError
from pto_core.errors.values import suggestion
from pto_insight.graphs.log import Rows
from pto_insight.graphs.logged_graph import Access, LoggedGraph
from pto_insight.graphs.measurement import Measurement
from pto_insight.graphs.places import INPUT, NO_DEP, Layout, element_bytes


def last_writers(graph: LoggedGraph, buffer: str, byte: int) -> list[Access]:
    """Return the accesses that may have written a byte of a buffer last.

    There are several if nothing orders their tasks, and none if no task declares that it writes the
    byte. ``buffer`` is the name of an argument of the run; another name raises UsageError.
    """
    if graph.log.is_measured:
        return _measured_writers(graph, buffer, byte)
    rows = graph.log.accesses
    buffers = {known.name: known for known in graph.log.buffers}
    if buffer not in buffers:
        known = ", ".join(sorted(buffers))
        raise UsageError(
            f"no argument of the run is called {buffer!r}{suggestion(buffer, sorted(buffers))}; "
            f"arguments: {known}",
            name="buffer",
            value=buffer,
        )
    address = buffers[buffer].address + byte
    writes = ~np.isin(rows["tag"], (INPUT, NO_DEP)) & (rows["owner"] < 0)
    near = writes & (rows["address"] <= address) & (address < rows["address"] + rows["size"])
    found = [int(access) for access in np.flatnonzero(near) if _has(rows[access], address)]
    tasks = [int(graph.task_of_access[access]) for access in found]
    return [
        graph.access(access)
        for access, task in zip(found, tasks, strict=True)
        if not any(graph.is_before(task, other) for other in tasks)
    ]


def _measured_writers(graph: LoggedGraph, buffer: str, byte: int) -> list[Access]:
    """Return the last writers by the bytes that tasks wrote."""
    measurement = Measurement(graph)
    tasks = {
        access.task
        for access in chain(measurement.byte_accesses, measurement.outside_of_views)
        if access.is_write
        and access.buffer.name == buffer
        and access.begin <= access.buffer.begin + byte < access.end
    }
    return [
        Access(graph.task(task), buffer, "writes")
        for task in sorted(tasks)
        if not any(graph.is_before(task, other) for other in tasks)
    ]


def _has(row: Rows, address: int) -> bool:
    """Return whether the view of an access has the byte at an address."""
    layout, size = Layout(row), element_bytes(row)
    first = int(row["address"]) + (int(row["start_offset"]) - layout.start) * size
    element = (address - first) // size
    if address < first or element >= layout.size:
        return False
    for dim in reversed(layout.order):
        at, element = divmod(element, layout.strides[dim])
        offset = int(row["offsets"][dim])
        if not offset <= at < offset + int(row["shapes"][dim]):
            return False
    return True
