"""Trees of child processes, observed by a process outside of the tree.

A forked process creates a tree: two children, each with two children, all with the mappings of
their Workers. `.ci/nightly` kills 100 times and interrupts 300 times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from observer import INTERRUPTED, again_until_interrupted, code_of, left_of, planted, spin_until

from pto_core.worker.memory import Budget, SharedArena
from pto_core.worker.memory.worker_memory import WorkerMemory
from pto_core.worker.processes import ChildPlan, ChildProcesses

BRANCHES = 2


@dataclass
class Tree:
    """The reports that the top process of a tree wrote before its end."""

    top: int
    reports: int
    seen: list[tuple[int, int]]  # process id and level; the top process has level 4

    def read(self, wanted: int) -> None:
        """Read reports until that many processes have reported, or the last one has exited."""
        while len(self.seen) < wanted and (report := os.read(self.reports, 8)):
            self.seen.append(struct.unpack("<ii", report))


def memory_of_a_worker() -> WorkerMemory:
    arena = SharedArena(Budget(1 << 20))
    return WorkerMemory(
        progress_table_bytes=64, connection_bytes=[64], arena=arena, heap_ring_size=1 << 20
    )


def grow(level: int, path: str, reports: int, announce: Callable[[], None]) -> ChildProcesses:
    """Report this process, start the next level, and call ``announce`` when that is ready."""
    os.write(reports, struct.pack("<ii", os.getpid(), level))
    processes = ChildProcesses()
    if level > 2:

        def body(start) -> None:
            _kept = memory_of_a_worker(), grow(level - 1, start.path, reports, start.ready)
            while True:
                signal.pause()

        processes.start([ChildPlan(f"{path}/c{i}", body) for i in range(BRANCHES)])
    announce()
    return processes


@contextlib.contextmanager
def standing_tree() -> Iterator[Tree]:
    """Create a tree that runs until it is killed or interrupted."""
    with planted(standing) as (top, reports):
        yield Tree(top, reports, [])


def standing(reports: int) -> None:
    """Run as the top process of a tree until it is killed."""
    _kept = memory_of_a_worker(), grow(4, "L4", reports, lambda: None)
    os.write(reports, struct.pack("<ii", 0, 0))
    while True:
        signal.pause()


ALL = 1 + BRANCHES + BRANCHES**2


def test_a_top_process_killed_during_its_start_leaves_nothing(repetitions, random_) -> None:
    for _ in range(repetitions):
        with standing_tree() as tree:
            tree.read(1)
            spin_until(time.monotonic() + random_.uniform(0, 0.04))
            os.kill(tree.top, signal.SIGKILL)
            # Read to the end of the pipe, which comes when the last process that could write has
            # exited.
            tree.read(ALL + 2)
            assert left_of([pid for pid, _ in tree.seen if pid]) == []


def starting_and_ending(reports: int) -> None:
    os.write(reports, struct.pack("<ii", os.getpid(), 4))

    def once() -> None:
        grow(3, "L3", reports, lambda: None).end(grace_s=0.01)

    again_until_interrupted(once)


def test_interrupt_at_random_instants(repetitions, random_) -> None:
    for _ in range(3 * repetitions):
        with planted(starting_and_ending) as (top, reports):
            tree = Tree(top, reports, [])
            tree.read(1)
            # half of the interrupts during the first start
            wait = random_.uniform(0, random_.choice((0.006, 0.1)))
            spin_until(time.monotonic() + wait)
            os.kill(tree.top, signal.SIGINT)
            assert code_of(tree.top) == INTERRUPTED, wait
            tree.read(1 << 30)
            assert left_of([pid for pid, _ in tree.seen if pid]) == [], wait
