"""The memory of a Worker for waiting tasks, heap rings, and configurations."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import CallConfig, ContinuousTensor, TaskArgs, TensorArgType, Worker
from pto_core.config import load_core

WAITING = 200_000
BYTES_A_TASK_MAX = 350
MIB, GIB = 1 << 20, 1 << 30

# A program for a separate process: memory that other tests freed would hide allocations.
WAITING_TASKS = f"""
import json, os, time
from pto_core import ContinuousTensor, TaskArgs, TensorArgType, Worker

def until_opened(args):
    gate, end = args.tensor(0), time.monotonic() + 60
    while not gate[0] and time.monotonic() < end:
        time.sleep(0.001)

def nothing(args):
    pass

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

with Worker(level=3, num_sub_workers=1) as worker:
    slow, quick = worker.register(until_opened), worker.register(nothing)
    before_start = resident_bytes()
    worker.init()
    started = resident_bytes() - before_start
    gate, row = worker.shared_array((1,), "int64"), worker.shared_array((4,))
    taken = []

    def graph(orch, args, config):
        blocked, reader = TaskArgs(), TaskArgs()
        blocked.add_tensor(ContinuousTensor.from_array(gate))
        blocked.add_tensor(ContinuousTensor.from_array(row), TensorArgType.OUTPUT)
        reader.add_tensor(ContinuousTensor.from_array(row))
        orch.submit_sub(slow, blocked)
        before = resident_bytes()
        for _ in range({WAITING}):
            orch.submit_sub(quick, reader)
        taken.append(resident_bytes() - before)
        gate[0] = 1

    worker.run(graph)
print(json.dumps({{"started": started, "taken": taken[0]}}))
"""


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", WAITING_TASKS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_each_of_many_waiting_tasks_uses_little_memory(measured) -> None:
    each = measured["taken"] / WAITING
    assert 64 < each <= BYTES_A_TASK_MAX, f"each waiting task uses {each:.0f} bytes"


def test_a_worker_with_default_settings_uses_little_memory(measured) -> None:
    """The four heap rings of 1 GiB are reserved, but no page of them is in use yet."""
    assert measured["started"] < 8 * MIB


def test_heap_rings_of_1_gib_use_memory_only_where_tasks_write(tmp_path: Path) -> None:
    assert load_core(cwd=tmp_path, environ={})["heap_ring_size"] == 1 << 30
    others = rings()  # of Workers that earlier tests left open
    with Worker(level=3, num_sub_workers=1) as worker:
        touch = worker.register(touch_the_first)
        resident: list[int] = []

        def graph(orch: Any, args: Any, config: Any) -> None:
            resident.append(resident_bytes_of_rings(others))
            large = TaskArgs()
            large.add_tensor(orch.alloc((16 * MIB,), np.float32), TensorArgType.INOUT)
            orch.submit_sub(touch, large).wait(60)
            resident.append(resident_bytes_of_rings(others))

        worker.run(graph)
    before, after = resident
    assert before < 32 * MIB
    assert after - before < 8 * MIB, "a task that touches one page uses 8 MiB or more"


def resident_bytes_of_rings(others: Collection[int]) -> int:
    """Return the memory in use of the only mapping of heap rings that is not one of ``others``."""
    (resident,) = (used for inode, used in rings().items() if inode not in others)
    return resident


def rings() -> dict[int, int]:
    """Return the memory in use of each mapping that has the size of four heap rings, by inode."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            status = descriptor.stat()
            if "memfd:" in os.readlink(descriptor) and 4 * GIB <= status.st_size < 5 * GIB:
                found[status.st_ino] = 512 * status.st_blocks
    return found


def touch_the_first(args: Any) -> None:
    args.tensor(0)[0] = 1


def which(orch: Any, args: Any, config: CallConfig) -> None:
    """Record which object the child has for this configuration."""
    args.tensors[0].numpy()[0] = id(config)


def test_equal_configurations_are_one_object(make) -> None:
    """A child has one object for each configuration number, so equal objects show equal numbers."""
    pod = make(level=4)
    pod.add_worker(make(level=3, num_sub_workers=1))
    handle = pod.register(which)
    seen = pod.shared_array((3, 100, 1), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for number, row in enumerate(seen):
            for place in row:
                given = TaskArgs()
                tensor = ContinuousTensor.from_array(place)
                given.add_tensor(tensor, TensorArgType.OUTPUT_EXISTING)
                orch.submit_next_level(handle, given, CallConfig(block_dim=1 + number))

    pod.run(graph)
    numbers = [set(row.ravel()) for row in seen]
    assert [len(one) for one in numbers] == [1, 1, 1]
    assert len(set.union(*numbers)) == 3
    assert 0 not in set.union(*numbers)


def test_arguments_are_released_when_their_run_ends(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(touch_the_first)
    arrays = []

    def graph(orch: Any, _args: Any, _config: Any) -> None:
        array = worker.shared_array((4,))
        given = TaskArgs()
        given.add_tensor(array, TensorArgType.INOUT)
        orch.submit_sub(handle, given)
        arrays.append(weakref.ref(array))

    worker.run(graph)
    assert [alive() for alive in arrays] == [None]
