"""Counters as rows: grouped by ring and scheduler, without counters that are 0."""

from __future__ import annotations

from pto_core.cli.show import counter_rows


def test_counters_are_grouped_by_ring_and_scheduler() -> None:
    counters = {
        "edges": 16,
        "steals": 0,
        "ring0_tasks_peak": 0,
        "ring0_heap_bytes": 0,
        "ring1_tasks_peak": 1600,
        "ring1_heap_bytes": 0,
        "blocked_on_heap_ns": 2_500_000,
        "dispatches_0": 16,
        "dispatches_1": 0,
    }
    assert counter_rows(counters) == [
        ("edges", "16"),
        ("tasks peak, by ring", "0 / 1,600"),
        ("blocked on heap time", "2.5 ms"),
        ("dispatches, by scheduler", "16 / 0"),
    ]
