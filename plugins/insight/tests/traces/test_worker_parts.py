"""The parts of a Worker's trace: that of its driver, and those of other hosts."""

from __future__ import annotations

from pto_insight.traces.worker_parts import Recorded, from_driver
from pto_insight.traces.worker_records import DriverTrace


def test_callables_of_one_name_stay_apart() -> None:
    names = ["run.<lambda>", "f", "run.<lambda>", "run.<lambda>"]
    native = DriverTrace(b"", [0, 0], 1, (0, 0), (1, 1), [], names, b"")
    data = from_driver(Recorded(native), "L3", [], 1, lambda *_: (None, None))
    assert data.callables == ("run.<lambda>", "f", "run.<lambda> (2)", "run.<lambda> (3)")
