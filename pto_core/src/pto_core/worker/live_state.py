"""What a Worker is doing now, as plain data and as text: for ``pto top`` and for notes at errors.

The driver writes it to the progress table, in the memory that the Worker shares with its children.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pto_core._worker import Driver, read_state

_STATES = ("starting", "ready", "lost")
_COUNTS = ("submitted", "finished", "failed", "poisoned", "waiting", "in_flight")
_NS = 1_000_000_000
_LISTED = 16


def worker_record(descriptor: int) -> dict[str, Any] | None:
    """Return what the Worker does whose shared memory is this file; None for another file.

    ``version`` and ``process`` are always present. The other keys are missing if the layout of the
    memory has another version than :data:`pto_core._worker.STATE_VERSION`.
    """
    table = read_state(descriptor)
    if table is None:
        return None
    known = {"version": table["version"], "process": table["process"]}
    if "worker" not in table:
        return known
    state, now_ns = table["worker"], time.monotonic_ns()
    return {
        **known,
        "path": state["path"],
        "age_s": _seconds(now_ns, state["time_ns"]) if state["time_ns"] else None,
        **{name: state[name] for name in _COUNTS},
        "children": [_child(child, now_ns) for child in state["children"]],
    }


def _child(state: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
    runs = state["started"] > state["completed"]
    is_ready = state["presence"] == _STATES.index("ready")
    name = _STATES[state["presence"]] if not is_ready else "running" if runs else "idle"
    task = None
    if is_ready and runs and state["count"] == state["started"]:
        is_known = bool(state["callable"])
        task = {
            "task": state["task"] if is_known else None,
            "callable": state["callable"] or None,
            "file": state["file"] or None,
            "line": state["line"] if state["file"] else None,
            "age_s": _seconds(now_ns, state["since_ns"]),
        }
    return {
        "path": state["path"],
        "pid": state["pid"] or None,
        "state": name,
        "done": state["completed"],
        "in_flight": max(state["sent"] - state["completed"], 0),
        "task": task,
    }


def _seconds(now_ns: int, since_ns: int) -> float:
    return round(max(now_ns - since_ns, 0) / _NS, 3)


def task_text(task: Mapping[str, Any] | None) -> str:
    """Return the phrase for the task that a child runs; empty if it has run for a short time."""
    if task is None or task["callable"] is None:
        return ""
    place = f" ({Path(task['file']).name}:{task['line']})" if task["file"] else ""
    return f"task {task['task']}, {task['callable']}{place}, for {task['age_s']:.1f} s"


def worker_lines(record: Mapping[str, Any]) -> Sequence[str]:
    """Return the lines of a Worker and of its first children, with rates if they are known."""
    failed = f", {record['failed']:,} failed" if record["failed"] else ""
    lines = [
        f"{record['path']}: {record['finished']:,} of {record['submitted']:,} tasks ended{failed}, "
        f"{record['waiting']:,} waiting, {record['in_flight']:,} in children{_rate(record)}"
    ]
    children = record["children"]
    for child in children[:_LISTED]:
        memory = f", {child['rss_bytes'] >> 20:,} MiB" if child.get("rss_bytes") else ""
        task = task_text(child["task"])
        lines.append(
            f"  {child['path']:<14} {child['pid'] or '':>8} {child['state']:<8} "
            f"{child['done']:,} done, {child['in_flight']:,} in its queue{_rate(child)}{memory}"
            + (f"; {task}" if task else "")
        )
    if len(children) > _LISTED:
        lines.append(f"  {len(children) - _LISTED} more children")
    return lines


def _rate(record: Mapping[str, Any]) -> str:
    rate = record.get("tasks_per_s")
    return "" if rate is None else f", {rate:,.0f} tasks/s"


def state_text(driver: Driver, descriptor: int) -> str:
    """Return what a Worker of this process is doing, for a note at an error."""
    driver.note_state()
    record = worker_record(descriptor)
    return "" if record is None else "\n".join(worker_lines(record))


def note_interrupt(error: BaseException, driver: Driver, descriptor: int) -> None:
    """Add the state of a Worker to a KeyboardInterrupt, unless it has a note already."""
    if isinstance(error, KeyboardInterrupt) and not hasattr(error, "__notes__"):
        error.add_note(f"state when the run was interrupted:\n{state_text(driver, descriptor)}")
