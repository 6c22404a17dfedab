"""The resources that a child inherits, and those that it releases."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pto_core.worker.memory import Budget, SharedArena
from pto_core.worker.memory.worker_memory import WorkerMemory
from pto_core.worker.processes import ChildPlan, ChildProcesses, close_parent_only, parent_only

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def ask(*functions) -> list:
    """Call each function in a separate child; return the results."""

    def body(function):
        return lambda start: start.ready(function())

    processes = ChildProcesses()
    values = processes.start([ChildPlan(f"L3/s{i}", body(q)) for i, q in enumerate(functions)])
    processes.end()
    return values


def kinds_of_descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


# Invariant: A child inherits the user's descriptors, and none that only a parent needs.
def test_only_the_users_descriptors_are_inherited(tmp_path) -> None:
    (before,) = ask(kinds_of_descriptors)
    memory = WorkerMemory(
        progress_table_bytes=64,
        connection_bytes=[64],
        arena=SharedArena(Budget(1 << 20)),
        heap_ring_size=1,
    )
    read_end, write_end = os.pipe()
    parent_only(read_end)
    with (tmp_path / "users").open("w") as opened:
        first, second = ask(kinds_of_descriptors, kinds_of_descriptors)
    for found in (first, second):
        assert sum("pto-worker" in kind for kind in found) == 0
        assert sum("[pidfd]" in kind for kind in found) == 1, "its parent's"
        assert str(tmp_path / "users") in found
        assert len(found) == len(before) + 2, "the child did not inherit the file and the pipe"
    close_parent_only(read_end)
    os.close(write_end)
    memory.close()
    assert opened.closed


def test_a_destroyed_mapping_removes_its_descriptor_from_the_list(tmp_path) -> None:
    """If the number stayed in the list, a child could close a new descriptor with this number."""
    arena = SharedArena(Budget(1 << 20))
    number = arena.mapping.descriptor
    del arena
    with (tmp_path / "users").open("w") as opened:
        assert opened.fileno() == number
        (found,) = ask(kinds_of_descriptors)
    assert str(tmp_path / "users") in found


def test_a_child_has_its_own_signal_settings() -> None:
    def state() -> list:
        status = dict(
            line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        caught, ignored = int(status["SigCgt"], 16), int(status["SigIgn"], 16)
        blocked = int(status["SigBlk"], 16)
        return [
            [bool(mask >> (number - 1) & 1) for mask in (caught, ignored, blocked)]
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
        ]

    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    old_term = signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
    try:
        (found,) = ask(state)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2, signal.SIGTERM})
        signal.signal(signal.SIGUSR1, old)
        signal.signal(signal.SIGTERM, old_term)
    assert found == [
        [False, True, False],  # SIGINT is ignored, because the parent handles Ctrl-C
        [False, False, False],
        [False, False, False],
        [False, False, True],  # SIGUSR2 stays blocked, as the user set it
    ]


def test_a_child_has_a_distinct_name() -> None:
    def body(start) -> None:
        start.ready(Path("/proc/self/comm").read_text().strip())

    processes = ChildProcesses()
    names = processes.start([ChildPlan("L3/sub1", body), ChildPlan("L5/pod0/host1/chip12", body)])
    processes.end()
    assert names == ["L3/sub1", "~0/host1/chip12"]


def test_children_draw_different_random_numbers() -> None:
    def draw() -> tuple[float, float]:
        return random.random(), float(np.random.random())

    np.random.random()
    first, second = ask(draw, draw)
    assert len({*first, *second}) == 4


def test_buffered_output_is_printed_once() -> None:
    program = (
        "import os, sys\n"
        "from pto_core.worker.processes import ChildPlan, ChildProcesses\n"
        "def body(start):\n"
        "    print('child', end=' ')\n"
        "    start.ready()\n"
        "print('before', end=' ')\n"
        "sys.stderr.write('said once')\n"
        "processes = ChildProcesses()\n"
        "processes.start([ChildPlan('L3/sub0', body)])\n"
        "processes.end()\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("before child after\n", "said once")


def run_pools(environment: dict[str, str]) -> list[str]:
    """Return variables of a child, its threads before a matrix product, and those added by it."""
    program = (
        "import os, numpy\n"
        "from pto_core.worker.processes import ChildPlan, ChildProcesses\n"
        "def body(start):\n"
        "    a = numpy.ones((300, 300))\n"
        "    before = len(os.listdir('/proc/self/task'))\n"
        "    (a @ a).sum()\n"
        f"    print(*(os.environ.get(name) for name in {POOLS!r}))\n"
        "    print(before, len(os.listdir('/proc/self/task')) - before)\n"
        "    start.ready()\n"
        "a = numpy.ones((300, 300)); (a @ a).sum()\n"
        "processes = ChildProcesses()\n"
        "processes.start([ChildPlan('L3/sub0', body)])\n"
        "processes.end()\n"
        f"print(*(os.environ.get(name) for name in {POOLS!r}))\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name not in POOLS}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**inherited, **environment},
    )
    return done.stdout.splitlines()


def test_numerical_libraries_have_one_thread_though_loaded_before() -> None:
    assert run_pools({}) == ["1 1 1 1", "2 0", "None None None None"]


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="on one core, a numerical library starts no threads"
)
def test_settings_of_the_user_are_kept() -> None:
    assert run_pools({"OMP_NUM_THREADS": "2"}) == [
        "2 None None None",
        "2 1",
        "2 None None None",
    ]
    assert run_pools({"OPENBLAS_NUM_THREADS": "2"})[:2] == ["1 2 1 1", "2 1"]


def test_a_child_has_little_memory_of_its_own() -> None:
    """The budget of a whole child is 4 MB; this test checks its start, with numpy imported.

    The test uses the minimum of several samples, because a page that the parent writes meanwhile
    counts as memory of the child.
    """

    def private_kb() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

    assert min(max(ask(private_kb, private_kb)) for _ in range(3)) < 4096
