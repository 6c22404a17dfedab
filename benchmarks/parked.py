"""Figures of a one-task run on a sleeping Worker, and of bare processes that sleep the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile, wall_s
from benchmarks.native import Binaries, numbers
from pto_core import Worker
from pto_core.published import CallableHandle

PAUSE_S = 0.002
"""After this time each thread that waits for a doorbell is parked."""
TURNS = 200


def figures(
    children: int, worker: Worker, handle: CallableHandle, binaries: Binaries, effort: Effort
) -> Iterator[Figure]:
    """Measure the Worker and the bare processes alternately: both times, and their ratio."""
    turns = effort.size(TURNS)

    def one(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle)

    def ours_us() -> float:
        times = []
        for _ in range(turns):
            time.sleep(PAUSE_S)
            times.append(wall_s(lambda: worker.run(one)) * 1e6)
        return percentile(times, 0.5)

    def bare_us() -> float:
        pause_us = int(PAUSE_S * 1e6)
        return numbers(binaries.parked_processes, children, turns, pause_us)[0][0] / 1e3

    taken = interleaved({"ours": ours_us, "bare": bare_us}, effort.repeats)
    where = "one child" if children == 1 else "two children"
    bare = f"parked round trip between bare processes, {where}"
    yield Figure(
        f"one-task run on a parked Worker, {where}, median",
        "us",
        taken["ours"],
        peer_name=bare,
        peer=taken["bare"],
    )
    yield Figure(
        f"one-task run on a parked Worker over a bare parked round trip, {where}",
        "x",
        [above / below for above, below in zip(taken["ours"], taken["bare"], strict=True)],
        budget=2.0,
        peer_name=bare,
    )
