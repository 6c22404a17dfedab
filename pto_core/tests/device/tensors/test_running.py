"""Scopes, clusters, blocks, waits, deadlocks and hazards on runtimes with tensors."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import Device, In, InOut, Out, kernel
from pto_core.errors import (
    DeadlockError,
    RunTimeoutError,
    TaskFailedError,
    TaskTimeoutError,
    UnsupportedError,
    UsageError,
)

PATIENCE_S = 60


@kernel(core="aiv")
def increase(x: InOut):
    x += 1


@kernel(core="aic")
def nothing(*args: In):
    pass


def test_scopes_end_also_on_exceptions(tensors: Device) -> None:
    class Mine(Exception):
        pass

    caught: list[bool] = []

    def graph(rt, x):
        try:
            with rt.scope():
                rt.submit(increase, x)
                with rt.scope():
                    raise Mine
        except Mine:
            caught.append(True)
        with rt.scope():
            rt.submit(increase, x)

    x = np.zeros(4)
    assert tensors.run(graph, x).tasks == 2
    assert (x == 2).all()
    assert caught == [True]


def test_ending_a_scope_that_is_not_open_is_refused(tensors: Device) -> None:
    def graph(rt):
        rt.scope().__exit__(None, None, None)

    with pytest.raises(UsageError, match=r"none is open|no scope is open"):
        tensors.run(graph)


def test_clusters(tensors: Device) -> None:
    seen: list[int] = []

    def graph(rt, x):
        with rt.cluster() as cluster:
            seen.append(cluster)
            rt.submit(increase, x, cluster=cluster)
        seen.append(rt.allocate_cluster())
        seen.append(rt.allocate_cluster())
        rt.submit_block(increase, x, block_dim=2, clusters=seen[1:])
        for taken in seen[1:]:
            rt.free_cluster(taken)

    with pytest.raises(TaskFailedError, match="takes 1 positional argument but 3 were given"):
        tensors.run(graph, np.zeros(4))
    assert len(set(seen[1:])) == 2


def test_blocks_get_their_number(tensors: Device) -> None:
    @kernel(core="aiv")
    def number(x: InOut, block_dim: int, block: int):
        x[block] = 10 * block_dim + block

    def graph(rt, x):
        rt.submit_block(number, x, block_dim=4)
        rt.submit(increase, x)

    x = np.zeros(4)
    assert tensors.run(graph, x).tasks == 5
    assert x.tolist() == [41, 42, 43, 44]


def test_pipes_order_and_have_no_memory(tensors: Device) -> None:
    seen: list[Any] = []

    @kernel(core="aiv")
    def through(pipe: Out):
        seen.append(pipe)

    def graph(rt):
        pipe = rt.pipe()
        rt.submit(through, pipe)
        rt.submit(nothing, pipe)
        assert "pipe" in repr(pipe)

    tensors.run(graph)
    assert seen == [None]


def test_explicit_edges(tensors: Device) -> None:
    def graph(rt, x):
        first, second = rt.submit(increase, x), rt.submit(increase, x)
        third = rt.submit(increase, x, after=(first, second))
        rt.submit(increase, x, after=third)
        rt.add_dep(first, rt.submit(increase, x))

    report = tensors.run(graph, np.zeros(4))
    statistics = report.statistics
    # a runtime that derives edges counts only the two explicit edges to older tasks
    if "edges_explicit" in statistics:
        assert statistics["edges_explicit"] == 2
    else:
        assert statistics["edges"] == 4


def test_every_statistic_is_reported(in_order: Device) -> None:
    assert len(in_order.run(lambda rt: None).statistics) == 100


@pytest.mark.parametrize("given", [None, "raw", "full"])
def test_hazards(in_order: Device, given: str | None) -> None:
    report = in_order.run(lambda rt: None, hazards=given)
    assert report.statistics["hazards"] == {None: 1, "raw": 0, "full": 1}[given]


def test_hazards_by_setting(open_in_order: Callable[..., Device]) -> None:
    device = open_in_order(hazards="raw")
    assert device.run(lambda rt: None).statistics["hazards"] == 0
    assert device.run(lambda rt: None, hazards="full").statistics["hazards"] == 1
    with pytest.raises(UsageError, match="hazards is 'war'; pass 'raw', 'full', 'check' or None"):
        device.run(lambda rt: None, hazards="war")


def test_hazards_need_a_runtime_that_finds_them(device: Device, runtime: str) -> None:
    for hazards in ("raw", "full"):
        with pytest.raises(UnsupportedError, match=f"the runtime '{runtime}' orders tasks by"):
            device.run(lambda rt: None, hazards=hazards)
    with pytest.raises(UnsupportedError, match=r"orders tasks by the edges.*\(argument\)"):
        pto_core.open_device("a2a3sim", runtime=runtime, settings={"hazards": "full"})


def test_a_full_ring_blocks_only_the_submitting_thread(open_narrow: Callable[..., Device]) -> None:
    device = open_narrow()
    others = 0
    is_over = threading.Event()
    deadline = time.monotonic() + PATIENCE_S

    def count() -> None:
        nonlocal others
        while not is_over.is_set():
            others += 1
            time.sleep(0.001)

    @kernel(core="aiv")
    def slow(x: InOut):
        x += 1
        enough = others + 2
        while others < enough and time.monotonic() < deadline:
            time.sleep(0.001)

    def graph(rt, x):
        for _ in range(20):
            with rt.scope():
                rt.submit(slow, x)

    thread = threading.Thread(target=count)
    thread.start()
    x = np.zeros(4)
    try:
        device.run(graph, x)
        assert time.monotonic() < deadline
    finally:
        is_over.set()
        thread.join()
    assert (x == 20).all()
    assert others >= 40


class Gate:
    """Blocks each kernel until the gate is opened, or a time limit has passed."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()
        self.submits_third = threading.Event()

    def orchestration(self, limit_s: float) -> Callable[..., None]:
        """Return a graph whose third submit waits for a kernel that waits at this gate."""

        @kernel(core="aiv")
        def hold(x: InOut):
            self.entered.set()
            self.opened.wait(limit_s)

        def graph(rt, x):
            for number in range(100):
                if number == 2:
                    self.submits_third.set()
                with rt.scope():
                    rt.submit(hold, x)

        return graph


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def test_ctrl_c_while_a_submit_waits(open_narrow: Callable[..., Device], gate: Gate) -> None:
    device = open_narrow()

    def interrupt() -> None:
        gate.entered.wait()
        gate.submits_third.wait()  # returns when that submit releases the GIL in order to wait
        os.kill(os.getpid(), signal.SIGINT)

    def notice(number: int, frame: FrameType | None) -> None:
        gate.opened.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, notice)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            device.run(gate.orchestration(PATIENCE_S), np.zeros(4))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not device.is_lost
    assert device.run(lambda rt, x: rt.submit(increase, x), np.zeros(4)).tasks == 1


def test_time_limits_while_a_submit_waits(open_narrow: Callable[..., Device], gate: Gate) -> None:
    device = open_narrow()
    with pytest.raises(RunTimeoutError):
        device.run(gate.orchestration(0.8), np.zeros(4), timeout_s=0.2)
    assert device.run(lambda rt, x: rt.submit(increase, x), np.zeros(4)).tasks == 1


def test_the_limit_of_a_task_while_a_submit_waits(
    open_narrow: Callable[..., Device], gate: Gate
) -> None:
    device = open_narrow(task_timeout_s=1)
    with pytest.raises(TaskTimeoutError, match="kernel 'hold'"):
        device.run(gate.orchestration(2), np.zeros(4))
    assert device.run(lambda rt, x: rt.submit(increase, x), np.zeros(4)).tasks == 1


def test_after_a_deadlock_the_orchestration_continues(open_in_order: Callable[..., Device]) -> None:
    device = open_in_order(in_order__stuck=1)
    ids: list[int] = []
    lines: list[int] = []

    def graph(rt, x):
        for _ in range(2):
            ids.append(rt.submit(increase, x))
        lines.append(test_after_a_deadlock_the_orchestration_continues.__code__.co_firstlineno)
        ids.append(rt.submit(increase, x))
        made = rt.tensor(4, "float32")
        ids.append(rt.submit(increase, x))
        assert made.address == 0

    with pytest.raises(DeadlockError) as caught:
        device.run(graph, np.zeros(4))
    error = pickle.loads(pickle.dumps(caught.value))
    assert ids == [0, 1, 2, 3]
    assert (error.resource, error.ring) == ("task ring", 0)
    assert (error.needed, error.current) == (8, 4)
    assert error.settings == {"x.window": "8"}
    assert error.file == __file__
    assert error.line == lines[0] + 9
    assert device.run(lambda rt, x: rt.submit(increase, x), np.zeros(4)).tasks == 1


def test_a_ring_deadlock_names_the_line_and_a_sufficient_size(tmp_path: Path) -> None:
    def graph(rt, x):
        for _ in range(8):
            rt.submit(increase, x)

    line = graph.__code__.co_firstlineno + 2
    settings = {"pto2.task_window": 4, "cache_dir": tmp_path}
    x = np.zeros(4)
    with pto_core.open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        for _ in range(2):
            with pytest.raises(DeadlockError, match=f"wanted at test_running.py:{line}") as caught:
                device.run(graph, x)
        assert device.run(lambda rt, x: rt.submit(increase, x), x).tasks == 1
    error = caught.value
    assert (error.resource, error.ring, error.needed, error.current) == ("task ring", 0, 16, 4)
    assert (error.file, error.line, error.kernel) == (__file__, line, "increase")
    assert error.settings == {"pto2.task_window": "16"}
    with pto_core.open_device(runtime="pto2", settings={**settings, **error.settings}) as device:
        assert device.run(graph, x).tasks == 8
