"""Shared arrays: zeros, equal addresses in all processes, reuse, and refusals with numbers."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pto_core import DataType
from pto_core.errors import CapacityError, UsageError
from pto_core.worker.memory import Availability, Budget, SharedArena
from pto_core.worker.processes import ChildPlan, ChildProcesses


@pytest.fixture
def arena() -> SharedArena:
    return SharedArena(Budget(1 << 24))


@pytest.mark.parametrize("dtype", ["float32", "int64", bool, DataType.FLOAT16, "bfloat16"])
@pytest.mark.parametrize("shape", [7, (3, 5), (), (2, 0, 4), [1, 2, 3]])
def test_an_array_has_its_shape_and_type_and_is_zero(arena, shape, dtype) -> None:
    array = arena.array(shape, dtype)
    wanted = np.zeros(shape, DataType.of(dtype).numpy)
    assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0
    assert (array == wanted).all()


def test_memory_is_zeroed_and_freed_with_the_last_view(arena) -> None:
    first = arena.array((1000,), "uint8")
    first[:] = 7
    address, part = first.ctypes.data, first[10:20]
    del first
    assert arena.statistics().arrays == 1
    assert (part == 7).all()
    del part
    assert arena.statistics().arrays == 0
    again = arena.array((2000,), "uint8")
    assert again.ctypes.data == address
    assert not again.any()


def test_freed_pages_use_no_memory(arena) -> None:
    array = arena.array((1 << 22,), "uint8")
    array[:] = 1
    assert arena.mapping.resident_bytes >= 1 << 22
    del array
    assert arena.mapping.resident_bytes <= 1 << 13


def test_a_copy_uses_the_pages_of_the_last_one_of_its_size(arena) -> None:
    values = np.arange(1 << 18)
    first = arena.copied(values)
    assert (first == values).all()
    address, also = first.ctypes.data, arena.copied(-values)
    del first, also  # only one of them is kept
    assert values.nbytes <= arena.mapping.resident_bytes <= values.nbytes + (1 << 13)
    assert arena.statistics().arrays == 0
    again = arena.copied(values + 1)
    assert again.ctypes.data == address
    assert (again == values + 1).all()
    del again
    assert not arena.array(values.shape, values.dtype).any()
    other = arena.copied(values[1:])
    assert arena.mapping.resident_bytes <= values.nbytes + (1 << 13)
    assert (other == values[1:]).all()
    arena.close()
    del other
    assert arena.mapping.resident_bytes <= 1 << 13


def test_kept_pages_are_freed_if_memory_is_needed() -> None:
    arena = SharedArena(Budget(1 << 22))
    arena.copied(np.arange(1 << 18))
    assert not arena.array(1 << 22, "uint8").any()


def test_a_large_copy_of_a_part_has_its_values(arena) -> None:
    part = np.arange(1 << 19).reshape(1 << 9, 1 << 10)[:, ::2]
    assert (arena.copied(part) == part).all()


def test_random_arrays_never_overlap_and_all_memory_is_freed(arena) -> None:
    random_ = random.Random(5)
    live: list[tuple[np.ndarray, int]] = []
    for number in range(400):
        if live and random_.random() < 0.5:
            array, mark = live.pop(random_.randrange(len(live)))
            assert (array == mark).all()
            del array
        else:
            array = arena.array(random_.choice([1, 63, 64, 65, 4096, 9999]), "uint8")
            assert not array.any()
            array[:] = number % 255 + 1
            live.append((array, number % 255 + 1))
            del array
    live.clear()
    statistics = arena.statistics()
    assert (statistics.arrays, statistics.nbytes) == (0, 0)
    assert statistics.largest_free == statistics.capacity


# Invariant: Shared memory beyond the limit is refused at the call, with the numbers, and without
# any change.
def test_an_array_beyond_the_limit_is_refused_with_the_numbers() -> None:
    arena = SharedArena(Budget(10_000))
    kept = arena.array(6000, "uint8")
    before = arena.statistics()
    with pytest.raises(CapacityError, match="shared_memory_limit = 10000") as caught:
        arena.array((5000,), "uint8")
    assert (caught.value.value, caught.value.limit) == (5056, 10_000 - 6016)
    assert arena.statistics() == before
    del kept
    arena.array(5000, "uint8")


def test_the_largest_free_block_is_named_if_it_is_too_small(arena) -> None:
    arena = SharedArena(Budget(1 << 20), capacity=1 << 13)
    parts = [arena.array(4096, "uint8"), arena.array(4096, "uint8")]
    with pytest.raises(CapacityError, match="contiguous bytes, but the largest free block has 0"):
        arena.array(1, "uint8")
    assert arena.budget.allocated == 8192
    del parts


def test_without_a_limit_promised_memory_is_subtracted_from_free_memory() -> None:
    free = [100_000]
    arena = SharedArena(Budget(measure=lambda: Availability(free[0], "the box")), capacity=1 << 20)
    promised = arena.array(60_032, "uint8")
    with pytest.raises(CapacityError, match="the box leaves 100000 bytes, of which 60032 belong"):
        arena.array(50_000, "uint8")
    promised[:] = 1  # the memory is in use now, so the free memory has shrunk by this size
    free[0] = 40_000
    with pytest.raises(CapacityError):
        arena.array(50_000, "uint8")
    arena.array(30_000, "uint8")


def test_pages_without_an_allocation_do_not_raise_the_limit() -> None:
    class Pages:
        resident_bytes = 5000

    pages = Pages()
    budget = Budget(measure=lambda: Availability(1000, "the box"))
    budget.add_backing(pages)
    with pytest.raises(CapacityError, match="1000 are left: the box leaves 1000 bytes;"):
        budget.take(1001, "an array")
    budget.take(1000, "an array")


def test_the_written_pages_of_every_mapping_are_counted() -> None:
    class Pages:
        resident_bytes = 300

    both = [Pages(), Pages()]
    budget = Budget(measure=lambda: Availability(1000, "the box"))
    for pages in both:
        budget.add_backing(pages)
    budget.take(1000, "arrays of both")
    with pytest.raises(CapacityError, match="of which 400 belong to arrays that were not written"):
        budget.take(601, "an array")
    budget.take(600, "an array")


def test_an_invalid_shape_is_refused(arena) -> None:
    for shape in (-1, (2, -3), (1.5,), "ab"):
        with pytest.raises(UsageError, match="shape"):
            arena.array(shape)
    with pytest.raises(UsageError):
        arena.array(3, "no type")


def test_arrays_live_on_after_close(arena) -> None:
    array = arena.array(100, "int32")
    arena.close()
    array[:] = 3
    assert array.sum() == 300
    with pytest.raises(UsageError, match="after close"):
        arena.array(1)


def test_the_range_is_unmapped_with_the_last_array() -> None:
    arena = SharedArena(Budget(1 << 20))
    address = arena.mapping.address
    array = arena.array(10)
    del arena
    assert is_mapped(address)
    del array
    gc.collect()
    assert not is_mapped(address)


def is_mapped(address: int) -> bool:
    with open("/proc/self/maps") as lines:
        return any(line.startswith(f"{address:x}-") and "pto-worker" in line for line in lines)


# Invariant: Shared memory has the same address in all processes, however the levels between them
# start. An array starts as zeros, overlaps no live array, and lives as long as a view of it in the
# process that made it.
def test_a_child_sees_an_array_made_after_the_fork_at_its_address(arena) -> None:
    questions, answers = os.pipe(), os.pipe()

    def body(start) -> None:
        start.ready()
        address = int.from_bytes(os.read(questions[0], 8), "little")
        seen = (ctypes.c_int64 * 4).from_address(address)
        total = sum(seen)
        seen[0] = total
        os.write(answers[1], b"!")

    processes = ChildProcesses()
    processes.start([ChildPlan("L3/sub0", body)])
    array = arena.array(4, "int64")
    array[:] = (1, 2, 3, 4)
    os.write(questions[1], array.ctypes.data.to_bytes(8, "little"))
    assert os.read(answers[0], 1) == b"!"
    processes.end()
    assert array.tolist() == [10, 2, 3, 4]
    for descriptor in (*questions, *answers):
        os.close(descriptor)


def test_a_child_cannot_free_or_allocate_shared_memory(arena) -> None:
    held = {"array": arena.array(1000, "uint8")}
    held["array"][:] = 9
    address = held["array"].ctypes.data

    def body(start) -> None:
        held.clear()
        gc.collect()
        try:
            arena.array(1)
        except UsageError as error:
            start.ready(str(error))

    processes = ChildProcesses()
    (message,) = processes.start([ChildPlan("L3/sub0", body)])
    processes.end()
    assert "a child of the Worker's process" in message
    assert held["array"].ctypes.data == address
    assert (held["array"] == 9).all()


def test_an_array_that_dies_inside_a_call_is_returned_after_it() -> None:
    """The garbage collector can run inside a call of the arena."""
    dying: list[Any] = []

    class CollectingBudget(Budget):
        def take(self, nbytes: int, what: str) -> None:
            dying.clear()
            super().take(nbytes, what)

    arena = SharedArena(CollectingBudget(1 << 24))
    dying.append(arena.array(100, "uint8"))
    array = arena.array(200, "uint8")
    assert dying == []
    assert arena.statistics().nbytes == 256
    assert array.nbytes == 200


def test_threads_may_share_an_arena(arena) -> None:
    def churn(seed: int) -> None:
        random_ = random.Random(seed)
        for _ in range(300):
            array = arena.array(random_.randint(1, 3000), "uint8")
            assert not array.any()
            array[:] = seed
            assert (array == seed).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(1, 5)))
    assert arena.statistics().arrays == 0


def test_few_addresses_suffice_and_too_few_are_reported() -> None:
    program = (
        "import resource, numpy\n"
        "from pto_core.errors import CapacityError\n"
        "from pto_core.worker.memory import SharedArena\n"
        "from pto_core.worker.memory.worker_memory import WorkerMemory\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), -1))\n"
        "arena = SharedArena()\n"
        "print(arena.mapping.nbytes < 1 << 29, arena.array(10).sum())\n"
        "try:\n"
        "    WorkerMemory(progress_table_bytes=64, connection_bytes=[64], arena=arena)\n"
        "except CapacityError as error:\n"
        "    print(error.name, 'ulimit -v' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True 0.0\nheap_ring_size True\n"
