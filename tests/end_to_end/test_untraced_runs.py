"""A run without diagnostics calls no code of diagnostics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

import pto_core
from pto_core import CallConfig, InOut, Worker

OF_DIAGNOSTICS = (
    "pathlib",
    "pto_core.config",
    "pto_core.device.tracing",
    "pto_insight.graphs",
    "pto_core.worker.child_group.Child.",
    "pto_core.worker.tracing",
    "pto_core.interfaces.observer",
    "pto_core.plugins",
    "pto_insight.traces",
    "pto_core.user_ranges",
)


@pto_core.kernel(core="aiv")
def double(x: InOut) -> None:
    x *= 2


def doubled(rt: Any, x: InOut) -> None:
    rt.submit(double, x)


def nothing(args: Any = None) -> None:
    pass


def called_functions(run: Callable[[], object]) -> set[str]:
    """Return the full names of all Python functions that this thread calls in a second run."""
    run()
    called = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return called


def diagnosing(called: set[str]) -> list[str]:
    return sorted(name for name in called if name.startswith(OF_DIAGNOSTICS))


def test_a_run_of_a_device_prepares_no_diagnostics() -> None:
    x = np.ones(16, np.float32)
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        called = called_functions(lambda: device.run(doubled, x))
        configured = called_functions(
            lambda: device.run(doubled, x, config=CallConfig(block_dim=2))
        )
        traced = called_functions(lambda: device.run(doubled, x, trace=1))
    assert diagnosing(called) == []
    assert diagnosing(configured) == []
    assert any(name.startswith("pto_core.device.tracing.") for name in traced)
    assert (x == 64).all()


def test_a_run_of_a_worker_prepares_no_diagnostics() -> None:
    with Worker(level=3, num_sub_workers=1) as worker:
        handle = worker.register(nothing)
        called = called_functions(lambda: worker.run(lambda orch, *_: orch.submit_sub(handle)))
    assert any(name.startswith("pto_core.worker.runs.") for name in called)
    assert diagnosing(called) == []
