"""Trees of Workers, observed from outside while they are killed and interrupted during runs.

A forked process runs graph after graph in a pod of two hosts, each with a chip and a SUB child.
`.ci/nightly` does each test 100 times, and interrupts 300 times.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from observer import (
    END_S,
    INTERRUPTED,
    again_until_interrupted,
    below,
    children,
    code_of,
    is_gone,
    is_readable,
    left_of,
    planted,
    spin_until,
)

from pto_core import ChipCallable, In, Out, TaskArgs, TensorArgType, Worker, kernel
from pto_core.errors import ChildDiedError, TaskFailedError

PROCESSES = 1 + 2 + 2 * 2
KILLS_MAX = 10
TOLD_S = 2
"""The time within which a killed child must be reported."""
SOON_S = 1
"""The fastest of several kills must be complete within this time; a busy machine may be slow."""


@kernel(core="aiv")
def double(a, b):
    b[:] = 2 * a


def orchestration(rt, a: In, b: Out) -> None:
    rt.publish(rt.add_task(double, (a, b)))


def check(args) -> None:
    a, b = args.tensor(0), args.tensor(1)
    assert (b == 2 * a).all()


def arguments(*tensors: tuple[Any, TensorArgType]) -> TaskArgs:
    args = TaskArgs()
    for tensor, tag in tensors:
        args.add_tensor(tensor, tag)
    return args


class Pod:
    """A Worker of level 4 over two of level 3, created and used in one process."""

    def __init__(self) -> None:
        self.worker = Worker(4, heap_ring_size=1 << 24)
        self.hosts = []
        for number in range(2):
            host = Worker(
                3,
                platform="a2a3sim",
                runtime="host_build_graph",
                device_ids=[number],
                num_sub_workers=1,
                heap_ring_size=1 << 24,
            )
            chip, sub = host.register(ChipCallable(orchestration)), host.register(check)
            self.hosts.append(self.worker.register(self._graph_of(chip, sub)))
            self.worker.add_worker(host)
        self.data = self.worker.shared_array((4, 64))
        self.numbers = itertools.count(1)

    @staticmethod
    def _graph_of(chip, sub) -> Callable[..., None]:
        def graph(orch, args, config) -> None:
            a, b = args.tensors
            written = arguments((a, TensorArgType.INPUT), (b, TensorArgType.OUTPUT))
            orch.submit_next_level(chip, written)
            orch.submit_sub(sub, arguments((a, TensorArgType.INPUT), (b, TensorArgType.INPUT)))

        return graph

    def run(self) -> None:
        """One run on both hosts, with a check of its result."""
        self.data[:2] = next(self.numbers)

        def graph(orch, args, config) -> None:
            for number, host in enumerate(self.hosts):
                orch.submit_next_level(
                    host,
                    arguments(
                        (self.data[number], TensorArgType.INPUT),
                        (self.data[2 + number], TensorArgType.OUTPUT),
                    ),
                    worker=number,
                )

        self.worker.run(graph)
        assert (self.data[2:] == 2 * self.data[:2]).all()


def running(reports: int) -> None:
    """Run graphs until one fails; write its error, and end the remaining processes."""
    pod = Pod()
    pod.worker.init()
    pod.run()
    os.write(reports, b"ready")
    try:
        while True:
            pod.run()
    except (ChildDiedError, TaskFailedError) as error:
        os.write(reports, pickle.dumps((type(error).__name__, str(error))))
    pod.worker.close()


@contextlib.contextmanager
def running_tree(random_: random.Random) -> Iterator[tuple[int, list[int], int]]:
    """Yield the top process of a running tree, all its processes, and the pipe of its reports."""
    with planted(running) as (top, reports):
        assert is_readable(reports, END_S)
        assert os.read(reports, 5) == b"ready"
        processes = [top, *below(top)]
        assert len(processes) == PROCESSES
        spin_until(time.monotonic() + random_.uniform(0, 0.02))
        yield top, processes, reports


def test_a_killed_host_is_named_and_its_chips_end(repetitions, random_) -> None:
    told_s = []
    for _ in range(repetitions):
        with running_tree(random_) as (top, processes, reports):
            path = f"L4/host{random_.randrange(2)}"
            told_s.append(killed(top, top, path, reports, processes))
            assert code_of(top) == 0
            assert left_of(processes[1:]) == []
    assert min(told_s) < SOON_S


@pytest.mark.parametrize("kind", ["chip", "sub"])
def test_a_killed_leaf_is_named_by_its_path_at_the_top(repetitions, random_, kind) -> None:
    told_s = []
    for _ in range(repetitions):
        with running_tree(random_) as (top, processes, reports):
            number = random_.randrange(2)
            host = child_at(top, f"L4/host{number}", reports)
            assert host is not None
            path = f"L4/host{number}/{kind}0"
            told_s.append(killed(top, host, path, reports, processes))
            assert code_of(top) == 0
            assert left_of(processes[1:]) == []
    assert min(told_s) < SOON_S


def killed(top: int, parent: int, path: str, reports: int, processes: list[int]) -> float:
    """Kill a child during a task; return the time until the top process named it.

    A child that has no task when it is killed is only restarted. Then the new child is killed,
    until the top process sends a report, which may be about an earlier kill. ``processes`` is
    updated.
    """
    killed_at: dict[int, float] = {}
    for _ in range(KILLS_MAX):
        victim = child_at(parent, path, reports)
        processes += set(below(top)).difference(processes)
        if victim is not None:
            killed_at.setdefault(victim, time.monotonic())
            # if the top process has just reported, its children may be gone
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        if is_readable(reports, TOLD_S):
            took_s = {pid: time.monotonic() - at for pid, at in killed_at.items()}
            kind, message = pickle.loads(os.read(reports, 1 << 16))
            assert kind in ("ChildDiedError", "TaskFailedError")
            reported = re.match(rf"{path}: process (\d+) was ended by SIGKILL", message)
            assert reported is not None, message
            return took_s[int(reported[1])]
    raise AssertionError(f"{path} was killed {KILLS_MAX} times without a report of the top")


def child_at(parent: int, path: str, reports: int) -> int | None:
    """Return the child of that name as soon as it runs; None if a report arrives before."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        if is_readable(reports, 0):
            return None
        with contextlib.suppress(OSError):  # a process may exit meanwhile
            for child in children(parent):
                if not is_gone(child) and Path(f"/proc/{child}/comm").read_text().strip() == path:
                    return child
    raise AssertionError(f"no {path} runs")


def interrupted(reports: int) -> None:
    os.write(reports, b"begun")

    def once() -> None:
        pod = Pod()
        with pod.worker:
            pod.run()

    again_until_interrupted(once)


# Invariant: An interrupt never leaves children half started or half ended.
def test_interrupt_at_random_instants_of_init_run_and_close(repetitions, random_) -> None:
    for _ in range(3 * repetitions):
        with planted(interrupted) as (top, reports):
            assert is_readable(reports, END_S)
            assert os.read(reports, 5) == b"begun"
            wait = random_.uniform(0, 0.5)
            spin_until(time.monotonic() + wait)
            processes = below(top)
            os.kill(top, signal.SIGINT)
            assert code_of(top) == INTERRUPTED, wait
            assert left_of(processes) == [], wait
