"""The runtime libraries run under a second backend that was written against the ABI only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pto_core import plugins

INLINE_BACKEND = Path(__file__).parents[1] / "native" / "inline_backend.cpp"
LINES_BELOW = 200
THREADS = re.compile(
    r"<(thread|stop_token|mutex|shared_mutex|condition_variable|future|semaphore|barrier|latch)>|"
    r"<(pthread|threads|semaphore|sched)\.h>|<omp\.h>|#pragma omp|<execution>|"
    r"\b(std::j?thread|pthread_create|thrd_create|std::async|clone3?|v?fork)\b"
)
RUNTIMES = [record.name for record in plugins.installed("runtime")]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_works_under_the_second_backend(stranger, runtime) -> None:
    stranger.install_backend("inline", stranger.compile(INLINE_BACKEND), {"callbacks"})
    outcomes = stranger.run_contract("RuntimeContract", runtime=runtime, backend="inline")
    failed = {test: problem for test, problem in outcomes.items() if problem}
    assert not failed, failed
    assert {"test_diamond", "test_independent_tasks"} <= outcomes.keys()
    claimed = plugins.load_runtime(runtime).capabilities
    assert ("test_public_graph" in outcomes) == ("explicit_edges" in claimed)
    assert ("test_publish_twice" in outcomes) == ("publish" in claimed)
    assert ("test_read_after_write" in outcomes) == ("inferred_edges" in claimed)


STUCK = """
import pto_core
from pto_core import Out, kernel

@kernel(core="aiv")
def fill(out: Out):
    pass

def graph(rt):
    for _ in range(8):
        rt.submit(fill, rt.tensor(1024, "uint8"))

settings = {"pto2.task_window": 4}
with pto_core.open_device("inline", runtime="pto2", settings=settings) as device:
    try:
        device.run(graph)
    except pto_core.errors.DeadlockError as error:
        print(error.needed, error.settings, error)
        print(*error.__notes__)
"""


def test_a_deadlock_without_planning_names_the_simulator(stranger) -> None:
    stranger.install_backend("inline", stranger.compile(INLINE_BACKEND), {"callbacks"})
    report, note = stranger.run_program(STUCK).splitlines()
    assert report.startswith("8 {'pto2.task_window': '8'} deadlock: ")
    assert "Needed, at least: task window 8 slots" in report
    assert "The sizes are lower bounds: inline cannot continue" in note
    assert note.endswith("pto run CASE -p a2a3sim -r tensormap_and_ringbuffer")


TRACED = """
import pto_core
from pto_core import ChipCallable, Out, Worker, kernel

@kernel(core="aiv")
def fill(out: Out):
    out[:] = 7

def graph(rt, out: Out):
    rt.submit(fill, out)

with Worker(3, "inline", "pto2", device_ids=[0]) as worker:
    out = worker.shared_array(8)
    with worker.trace() as trace, worker.session() as s:
        s.submit(ChipCallable(graph), out)
print((out == 7).all(), len(trace.tasks), (trace.tasks["end"] >= 0).all())
print(*trace.missing)
"""


def test_a_trace_states_that_a_chip_cannot_be_traced(stranger) -> None:
    stranger.install_backend("inline", stranger.compile(INLINE_BACKEND), {"callbacks"})
    outcome, missing = stranger.run_program(TRACED).splitlines()
    assert outcome == "True 1 True"
    assert missing == "L3/chip0: its backend cannot trace a run"


def test_there_is_a_runtime_to_try() -> None:
    assert RUNTIMES


def test_the_second_backend_is_short_and_has_no_thread() -> None:
    """Without threads, it shows orders of events that the threads of the first backend hide."""
    text = INLINE_BACKEND.read_text()
    assert len(text.splitlines()) < LINES_BELOW
    assert THREADS.search(text) is None
