"""The parts of a Worker's memory are disjoint and zero at first; they are granted and released."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from pto_core._worker import SharedMapping
from pto_core.errors import CapacityError, UsageError
from pto_core.worker.memory import Budget, SharedArena
from pto_core.worker.memory.worker_memory import WorkerMemory

MIB = 1 << 20


def make(limit: int | None = 1 << 28, **changes) -> WorkerMemory:
    wanted = {
        "progress_table_bytes": 5000,
        "connection_bytes": [100, 9000],
        "heap_ring_size": 8 * MIB,
        "arena": SharedArena(Budget(limit)),
    }
    return WorkerMemory(**{**wanted, **changes})


def test_the_parts_are_disjoint_aligned_and_zero() -> None:
    memory = make()
    parts = sorted(
        [(memory.progress_table, 5000), *map(memory.connection, range(2)), *memory.rings]
    )
    for (begin, size), (after, _) in itertools.pairwise(parts):
        assert begin % 4096 == 0
        assert begin + size <= after
    assert memory.connection(0)[1] >= 100
    assert memory.connection(1)[1] >= 9000
    assert [size for _, size in memory.rings] == [8 * MIB] * 4
    for address, size in parts:
        assert ctypes.string_at(address, min(size, 8192)) == bytes(min(size, 8192))


def test_a_connection_is_zero_again_for_the_next_child() -> None:
    memory = make()
    first, second = memory.connection(0), memory.connection(1)
    for address, size in (first, second):
        ctypes.memset(address, 5, size)
    memory.reset_connection(1)
    assert ctypes.string_at(second[0], second[1]) == bytes(second[1])
    assert ctypes.string_at(first[0], first[1]) == b"\5" * first[1]


def test_rings_are_granted_in_steps_within_the_budget() -> None:
    memory = make(limit=100 * MIB, heap_ring_size=80 * MIB)
    assert memory.grant(0, 1000) == 64 * MIB
    assert memory.grant(0, 60 * MIB) == 64 * MIB
    assert memory.grant(0, 65 * MIB) == 80 * MIB
    assert memory.grant(1, 10 * MIB) == 10 * MIB, "the rest was not granted"
    with pytest.raises(CapacityError, match="heap ring 1 needs") as caught:
        memory.grant(1, 30 * MIB)
    assert caught.value.name == "shared_memory_limit"
    assert memory.grant(1, 20 * MIB) == 20 * MIB
    with pytest.raises(CapacityError):
        memory.arena.array(1)


def test_closing_frees_all_memory_except_that_of_arrays() -> None:
    memory = make()
    array = memory.arena.array(MIB, "uint8")
    array[:] = 3
    for address, size in memory.rings:
        ctypes.memset(address, 1, size)
    memory.grant(2, 100)
    mine, shared = memory.mappings
    assert mine.resident_bytes >= 32 * MIB
    memory.close()
    assert mine.resident_bytes == 0
    assert shared.resident_bytes <= 2 * MIB
    assert (array == 3).all()
    assert memory.arena.budget.allocated == array.nbytes


def test_a_ring_without_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="heap_ring_size is 0"):
        make(heap_ring_size=0)


def test_an_occupied_address_is_a_clear_error() -> None:
    mapping = SharedMapping(MIB)
    assert 0x1000_0000_0000 <= mapping.address < 0x5000_0000_0000
    with pytest.raises(FileExistsError):
        SharedMapping.attach(mapping.descriptor, mapping.nbytes, mapping.address)


def test_zeroing_a_part_leaves_the_rest() -> None:
    mapping = SharedMapping(4 * 4096)
    for begin, size in ((0, 16384), (10, 100), (4000, 200), (4090, 8300), (4096, 4096), (5, 0)):
        ctypes.memset(mapping.address, 1, mapping.nbytes)
        mapping.zero(begin, size)
        content = ctypes.string_at(mapping.address, mapping.nbytes)
        assert content == b"\1" * begin + bytes(size) + b"\1" * (mapping.nbytes - begin - size)
