"""The observable state of an engine, as plain data that two engines can compare."""

from __future__ import annotations

from typing import Any

from pto_core.hierarchy.states import Reference
from pto_devkit.engine.interface import Snapshot
from pto_devkit.engine.reference.children import Child
from pto_devkit.engine.reference.core import Core
from pto_devkit.engine.reference.heap import HeapRing
from pto_devkit.engine.reference.slots import Task


def snapshot_of(core: Core) -> Snapshot:
    """Return a snapshot. It does not change when the engine changes."""
    return {
        "run": {
            "is_running": core.is_running,
            "is_ending": core.is_ending,
            "cancelled": core.cancelled,
            "tasks": core.tasks,
            "conservative_edges": core.conservative_edges,
            "failed": list(core.failed),
            "poisoned": list(core.poisoned),
        },
        "tasks": {number: _task(core, task) for number, task in core.slots.tasks.items()},
        "queues": {
            "singles": list(core.queues.singles),
            "groups": list(core.queues.groups),
            "early": list(core.queues.early),
        },
        "children": [_child(child) for child in core.children.all],
        "rings": [_ring(ring) for ring in core.rings],
        "scopes": [list(tasks) for tasks in core.scopes.open],
    }


def _task(core: Core, task: Task) -> dict[str, Any]:
    return {
        "state": core.slots.state(task).name,
        "unfinished": sorted(task.unfinished),
        "references": {each.name: task.references[each] for each in Reference},
        "attempts": task.attempts,
        "ended": task.ended,
        "poison": task.poison,
        "children": list(task.children),
    }


def _child(child: Child) -> dict[str, Any]:
    return {
        "state": child.state.name,
        "sent": child.sent,
        "completed": child.completed,
        "in_flight": [(frame.task, frame.member) for frame in child.frames],
    }


def _ring(ring: HeapRing) -> dict[str, int]:
    return {"head": ring.head, "used": ring.used, "size": ring.size}
