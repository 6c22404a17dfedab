"""How a Worker ends a trace, with stand-ins for its driver and its children."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pto_core.errors import ControlError
from pto_core.user_ranges import Range
from pto_core.worker.control import Lost
from pto_core.worker.tracing import WorkerTracing
from pto_insight.traces.worker_parts import ClockOffset, merged, of_child, on_this_host, packed

CONTENT = packed(of_child("L3/sub0", (Range("inside", "L3/sub0", "main", 0, 5, 9),), {}, 0))

SETTINGS: Any = {
    "trace_records": 100,
    "trace_after_s": 0.0,
    "trace_for_s": None,
    "flight_recorder": None,
}


class Group:
    """Two children, and a log of what a trace does with them. ``replies`` replaces replies."""

    def __init__(self, *, is_remote: bool = False) -> None:
        self.children: Any = [
            SimpleNamespace(path=f"L3/sub{child}", remote=is_remote or None, is_empty=False)
            for child in (0, 1)
        ]
        self.log: list[Any] = []
        self.replies: dict[tuple[int, str], Any] = {}
        self.before_reply: Callable[[], None] = lambda: None

    def trace_begin(self, level: int, most: int, window: Any, flight: str | None) -> None:
        self.log.append("driver begins")

    def trace_end(self) -> tuple[Any, ...]:
        self.log.append("driver ends")
        return b"", [0, 0, 0, 0], 0, (0, 0), (0, 0), [], [], b""

    def trace_place(self, code: int, instruction: int) -> tuple[None, None]:
        return None, None

    def ask_all(
        self,
        children: Any,
        operation: str,
        *arguments: Any,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[Any]:
        found = []
        for child in children:
            self.log.append((child, operation))
            self.before_reply()
            found.append(self._reply(child, operation, *arguments))
        if is_cancelled is not None and is_cancelled():
            return [None for _ in found]
        return found

    def send(self, child: int, operation: str) -> None:
        self.log.append((child, operation))

    def _reply(self, child: int, operation: str, *arguments: Any) -> Any:
        known: dict[str, Any] = {
            "trace_begin": None,
            "trace_end": len(CONTENT),
            "trace_piece": CONTENT[arguments[0] :] if arguments else b"",
            "trace_clock": 0,
        }
        return self.replies.get((child, operation), known[operation])


def tracing_of(group: Any) -> WorkerTracing:
    def release() -> None:
        group.log.append("memory")

    return WorkerTracing(group, group, group.children, release, "L3", SETTINGS)


def traced(group: Group) -> WorkerTracing:
    tracing = tracing_of(group)
    tracing.begin(1)
    group.log.clear()
    return tracing


def test_memory_is_freed_after_the_children_have_replied() -> None:
    group = Group()
    trace = traced(group).end()
    pieces = [(0, "trace_piece"), (1, "trace_piece")]
    assert group.log == ["driver ends", (0, "trace_end"), (1, "trace_end"), "memory", *pieces]
    assert (len(trace.ranges), trace.missing) == (2, ())


def test_memory_is_kept_if_the_wait_was_interrupted() -> None:
    group = Group()
    trace = traced(group).end(lambda: True)
    assert group.log == ["driver ends", (0, "trace_end"), (1, "trace_end")]
    assert [text.split(":")[0] for text in trace.missing] == ["L3/sub0", "L3/sub1"]


@pytest.mark.parametrize(
    ("operation", "reply", "message"),
    [
        ("trace_end", Lost(ControlError("it has exited")), "it has exited"),
        ("trace_end", ControlError("it refused"), "it refused"),
        ("trace_piece", Lost(ControlError("it has exited")), "it has exited"),
        ("trace_piece", b"", "only a part"),
        ("trace_piece", bytes(len(CONTENT)), "sent an invalid trace"),
    ],
)
def test_what_one_child_lacks_costs_nothing_of_the_others(
    operation: str, reply: Any, message: str
) -> None:
    group = Group()
    group.replies[0, operation] = reply
    tracing = traced(group)
    trace = tracing.end()
    (text,) = trace.missing
    assert text.startswith("L3/sub0: ")
    assert message in text
    assert [one.name for one in trace.ranges] == ["inside"]
    assert (1, "trace_end") in group.log
    group.replies.clear()
    tracing.begin(1)
    assert tracing.end().missing == ()


def test_a_child_is_named_once_for_all_its_exits() -> None:
    group = Group()
    tracing = traced(group)
    for _ in range(3):
        tracing.child_lost(1)
    (text,) = tracing.end().missing
    assert text.startswith("L3/sub1: its process exited during the trace")


def test_a_begin_that_is_interrupted_ends_everywhere() -> None:
    group = Group()
    tracing = tracing_of(group)

    def interrupt() -> None:
        raise KeyboardInterrupt

    group.before_reply = interrupt
    with pytest.raises(KeyboardInterrupt):
        tracing.begin(1)
    assert not tracing.is_on
    assert group.log[-3:] == ["driver ends", (0, "trace_end"), (1, "trace_end")]


def test_a_host_without_a_clock_at_the_begin_is_measured_at_the_end() -> None:
    group = Group(is_remote=True)
    group.replies[0, "trace_clock"] = Lost(ControlError("it has exited"))
    tracing = traced(group)
    group.replies.clear()
    trace = tracing.end()
    assert len(trace.ranges) == 2
    assert set(trace.clocks) == {"L3/sub0"}, "both stand-ins send the same path"
    (text,) = trace.missing
    assert text.startswith("L3/sub0: ")


def test_a_host_without_a_clock_at_the_end_keeps_its_records() -> None:
    group = Group(is_remote=True)
    tracing = traced(group)
    group.replies[1, "trace_clock"] = Lost(ControlError("it has exited"))
    trace = tracing.end()
    assert len(trace.ranges) == 2
    (text,) = trace.missing
    assert text.startswith("L3/sub1: ")


def test_the_errors_of_clocks_add_up_over_hosts() -> None:
    below = on_this_host(of_child("L5/host0/host0", (), {}, 0), ClockOffset(100, 7))
    host = merged(of_child("L5/host0", (), {}, 0), [below], ())
    assert on_this_host(host, ClockOffset(-30, 5)).clocks == {"L5/host0": 5, "L5/host0/host0": 12}
