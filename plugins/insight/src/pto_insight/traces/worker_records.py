"""How the arrays of a Worker's trace follow from the records of its driver.

``pto_core/native/worker/trace/events.hpp`` defines the events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import ALWAYS, Window
from pto_insight.traces.details import CALLABLE
from pto_insight.traces.records import (
    FAILED,
    FIRST_WORKER,
    NATIVE,
    RECORD,
    TIMES,
    WORKER_RECORD,
    WORKER_TASK,
    Event,
    converted,
)

_LOW = np.uint64(0xFFFFFFFF)
_MEMBER = np.uint64(0xFFFF)
_CALLABLE_SHIFT = np.uint64(40)
_TASK = np.uint64((1 << 40) - 1)


class DriverTrace(NamedTuple):
    """The result of the native ``Driver.trace_end``."""

    records: bytes
    lost: list[int]
    clock: int
    first: tuple[int, int]
    last: tuple[int, int]
    runs: list[tuple[int, int]]
    callables: list[str]
    kinds: bytes


def worker_arrays(
    native: DriverTrace, window: Window = ALWAYS
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the records and the tasks of one Worker, and the time of the first record.

    ``child`` counts the children of the Worker. Records that end outside of the window are dropped.
    """
    raw = np.frombuffer(native.records, NATIVE)
    plain, epoch_ns = converted(raw, native.clock, native.first, native.last)
    if window != ALWAYS:
        times = plain["end"] + epoch_ns
        is_inside = (times >= window[0]) & (times < min(window[1], np.iinfo("<i8").max))
        raw, plain = raw[is_inside], plain[is_inside]
    order = np.lexsort((plain["number"], plain["track"], plain["end"]))
    records = np.zeros(len(plain), WORKER_RECORD)
    for name in RECORD.names or ():
        records[name] = plain[name][order]
    first_tasks = np.array([task for task, _ in native.runs], "<i8")
    records["run"] = _runs_by_time(records, raw, native)
    tasks = _tasks(records)
    places = np.searchsorted(first_tasks, tasks["task"], side="right")
    tasks["run"] = np.maximum(places - 1, 0)
    tasks["callable"][tasks["callable"] >= len(native.callables)] = -1
    return records, tasks, epoch_ns


def _runs_by_time(records: NDArray[Any], raw: NDArray[Any], native: DriverTrace) -> NDArray[Any]:
    """Return the run of each record: the last one that began before its end."""
    if not len(raw):
        return np.zeros(0, "<u4")
    clocks = np.array([clock for _, clock in native.runs], "<u8")
    ticks = np.sort(raw["clock"])
    found = np.searchsorted(clocks, ticks, side="right")
    return np.asarray(np.maximum(found.astype("<i8") - 1, 0), "<u4")


def _tasks(records: NDArray[Any]) -> NDArray[Any]:
    """Return one row for each frame, and one for each task without a frame.

    A frame that was withdrawn has no row.
    """
    by_event = {event: records[records["event"] == event] for event in _TASK_EVENTS}
    sent = by_event[Event.DISPATCH]
    withdrawn = _frame_keys(records[records["event"] == Event.WITHDRAW])
    sent = by_event[Event.DISPATCH] = sent[~np.isin(_frame_keys(sent), withdrawn)]
    callables = (sent["a"] >> _CALLABLE_SHIFT).astype("<i8") - 1
    sent["a"] &= _TASK
    keys = {
        Event.DISPATCH: _frame_keys(by_event[Event.DISPATCH]),
        Event.COMPLETE: _frame_keys(by_event[Event.COMPLETE]),
        Event.START: _child_keys(by_event[Event.START]),
        Event.END: _child_keys(by_event[Event.END]),
    }
    frames = np.unique(np.concatenate(list(keys.values())))
    numbers = np.full(len(frames), -1, "<i8")
    for event, mine in keys.items():
        numbers[np.searchsorted(frames, mine)] = by_event[event]["a"].astype("<i8")
    submitted = by_event[Event.SUBMIT]["a"].astype("<i8")
    unsent = np.setdiff1d(submitted, numbers)
    tasks = np.full(len(frames) + len(unsent), -1, WORKER_TASK)
    tasks["worker"], tasks["member"] = 0, 0
    tasks["task"] = np.concatenate([numbers, unsent])
    tasks["child"][: len(frames)] = (frames >> np.uint64(32)).astype("<i4")
    for event, mine in keys.items():
        rows, found = np.searchsorted(frames, mine), by_event[event]
        tasks[_TASK_EVENTS[event]][rows] = found["end"]
        if event is Event.DISPATCH:
            tasks["callable"][rows] = callables
            tasks["member"][rows] = (found["b"] >> np.uint64(32)) & _MEMBER
        elif event is Event.START:
            tasks["pid"][rows] = (found["b"] >> np.uint64(32)).astype("<i8")
    measured = records[records["event"] == Event.PROCESSOR]
    is_known = np.isin(_child_keys(measured), frames)
    rows = np.searchsorted(frames, _child_keys(measured)[is_known])
    tasks["processor"][rows] = measured["a"][is_known]
    by_event[Event.SUBMIT]["b"] &= CALLABLE
    _fill(tasks, "submit", by_event[Event.SUBMIT], "end")
    _fill(tasks, "callable", by_event[Event.SUBMIT], "b")
    _fill(tasks, "ready", by_event[Event.READY], "end")
    _fill(tasks, "released_by", by_event[Event.READY], "b", -1)
    _fill(tasks, "result", by_event[Event.FINISH], "b")
    order, is_first = _attempts(tasks)
    tasks["ready"][order[~is_first]] = -1
    last = order[np.append(is_first[1:], True)[: len(order)]]
    _correct_results(tasks, last, np.searchsorted(frames, keys[Event.END]), by_event[Event.END])
    return tasks[np.lexsort((tasks["task"], tasks["start"]))]


_TASK_EVENTS = {**TIMES, Event.FINISH: "result"}


def _correct_results(
    tasks: NDArray[Any], last: NDArray[Any], ended: NDArray[Any], ends: NDArray[Any]
) -> None:
    """Replace the result of the task by that of the frame, where it is known.

    A frame that has started ends with a record of its child, or is lost with its child. The parent
    reports no completion of a lost frame. ``last``: the rows of last attempts; ``ended``: those of
    ``ends``, the records of children.
    """
    is_last = np.zeros(len(tasks), bool)
    is_last[last] = True
    unseen = (tasks["end"] < 0) & (tasks["complete"] < 0)
    began = tasks["start"] >= 0
    is_over = (tasks["result"] >= 0) | ~is_last
    tasks["result"][unseen & ~is_last] = -1
    tasks["result"][unseen & began & is_over] = FAILED
    tasks["result"][ended] = ends["b"] >> np.uint64(32)


def _attempts(tasks: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows of one Worker by task, member of a group, and time.

    The second array states for each of them whether it is the first attempt.
    """
    times = np.maximum(tasks["dispatch"], tasks["start"])
    order = np.lexsort((times, tasks["member"], tasks["task"]))
    numbers, members = tasks["task"][order], tasks["member"][order]
    is_first = np.ones(len(tasks), bool)
    is_first[1:] = (numbers[:-1] != numbers[1:]) | (members[:-1] != members[1:])
    return order, is_first


def visible_ends(tasks: NDArray[Any], records: NDArray[Any]) -> NDArray[np.int64]:
    """Return the end of each task for timelines; -1 for a task without a start.

    If the end of a task was not recorded, return the first of: the time at which the parent read
    the end or finished the task, the dispatch of the next attempt, the start of the next task in
    the same child, the end of the trace.
    """
    ends = np.where(tasks["start"] < 0, -1, tasks["end"])
    unknown = np.flatnonzero((tasks["start"] >= 0) & (ends < 0))
    if not len(unknown):
        return ends
    last = max(*(int(tasks[name].max()) for name in TIMES.values()), records["end"].max(initial=0))
    next_starts = _next_starts(tasks, last)
    finishes = records[records["event"] == Event.FINISH]
    for row in unknown.tolist():
        one = tasks[row]
        times = [next_starts[row]]
        if one["complete"] >= 0:
            times.append(one["complete"])
        else:
            rows = tasks[(tasks["worker"] == one["worker"]) & (tasks["task"] == one["task"])]
            sent = rows["dispatch"][rows["member"] == one["member"]]
            mine = (finishes["worker"] == one["worker"]) & (finishes["a"] == one["task"])
            times += [*sent[sent > one["start"]], *finishes["end"][mine]]
        ends[row] = min(times)
    return ends


def _next_starts(tasks: NDArray[Any], last: int) -> NDArray[np.int64]:
    """Return the start of the next task in the same child; ``last`` if there is none."""
    order = np.lexsort((tasks["start"], tasks["child"]))
    children, starts = tasks["child"][order], tasks["start"][order]
    found = np.full(len(tasks), last, "<i8")
    is_same = children[:-1] == children[1:]
    found[order[:-1][is_same]] = starts[1:][is_same]
    return found


def _frame_keys(records: NDArray[Any]) -> NDArray[Any]:
    """Return child and frame number as one number, from a record of the driver."""
    words = records["b"]
    return np.asarray((words >> np.uint64(48)) << np.uint64(32) | (words & _LOW))


def _child_keys(records: NDArray[Any]) -> NDArray[Any]:
    """Return child and frame number as one number, from a record of a child."""
    children = records["track"].astype("<u8") - np.uint64(FIRST_WORKER)
    return np.asarray(children << np.uint64(32) | (records["b"] & _LOW))


def _fill(tasks: NDArray[Any], name: str, records: NDArray[Any], source: str, add: int = 0) -> None:
    """Set a column from the first record of each task."""
    numbers, first = np.unique(records["a"].astype("<i8"), return_index=True)
    if not len(numbers):
        return
    places = np.minimum(np.searchsorted(numbers, tasks["task"]), len(numbers) - 1)
    known = numbers[places] == tasks["task"]
    values = records[source][first[places]].astype("<i8") + add
    tasks[name][known] = values[known]
