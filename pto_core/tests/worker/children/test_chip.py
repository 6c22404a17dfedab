"""The actions of a chip child for tasks and memory, on a simulated device."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pto_core import ChipCallable, ContinuousTensor, In, Out, Scalar, TaskArgs, kernel, open_device
from pto_core.errors import TaskFailedError, UsageError
from pto_core.worker.children.chip import _Chip
from pto_core.worker.children.tracing import ChipTracing
from pto_core.worker.memory import Budget, SharedArena


@kernel(core="aiv")
def scale(a, factor, b):
    b[:] = a * factor


def graph(rt, a: In, b: Out, factor) -> None:
    rt.publish(rt.add_task(scale, (a, factor, b)))


@pytest.fixture
def arena() -> SharedArena:
    return SharedArena(Budget(1 << 20))


@pytest.fixture
def chip():
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        made = _Chip(device, ChipTracing("L3/chip0", device))
        yield made
        made.free_all()


def call(chip: _Chip, callable_: object, tensors, scalars=()) -> None:
    args = TaskArgs()
    for tensor in tensors:
        args.add_tensor(tensor)
    for scalar in scalars:
        args.add_scalar(scalar)
    chip.run(callable_, args.view(), None)


def test_arrays_are_copied_in_and_back_by_the_signature(chip, arena) -> None:
    a, b = arena.array(8), arena.array(8)
    a[:] = np.arange(8)
    call(chip, ChipCallable(graph), (a, b), (3,))
    assert b.tolist() == (3 * np.arange(8)).tolist()
    assert a.tolist() == np.arange(8).tolist()


def test_after_a_failure_the_output_is_unchanged(chip, arena) -> None:
    @kernel(core="aiv")
    def fail(a, b):
        b[:] = 9
        raise ValueError("no")

    a, b = arena.array(8), arena.array(8)

    def failing(rt, a: In, b: Out) -> None:
        rt.publish(rt.add_task(fail, (a, b)))

    with pytest.raises(TaskFailedError):
        call(chip, failing, (a, b))
    assert not b.any()


def test_declared_scalars_have_their_type(chip, arena) -> None:
    seen = []

    def looking(rt, a, integer, real, plain) -> None:
        seen.append((integer, real, plain))

    signature = ("in", Scalar("int32"), Scalar(float), "scalar")
    a = arena.array(4)
    call(chip, ChipCallable(looking, signature=signature), (a,), (-5, 2.5, -1))
    assert seen == [(-5, 2.5, -1)]


def test_a_task_without_arguments_runs(chip) -> None:
    calls = []
    chip.run(lambda rt: calls.append(rt), None, None)
    assert len(calls) == 1


def test_memory_of_the_child_is_not_copied(chip, arena) -> None:
    """A task reads the bytes that copy_to wrote, so a program can load its weights once."""
    host = arena.array(16)
    host[:] = np.arange(16)
    operations = chip.operations
    address = operations["malloc"](64)
    operations["copy_to"](address, host.ctypes.data, 64)
    host[:] = 0
    out = arena.array(4)
    part = ContinuousTensor.from_pointer(address + 16, (4,), "float32", True)
    seen = []

    def whole(rt, a: In, b: Out, factor) -> None:
        seen.append(a.address)
        graph(rt, a, b, factor)

    call(chip, ChipCallable(whole), (part, out), (2,))
    assert out.tolist() == [8, 10, 12, 14]
    assert seen == [address + 16]
    operations["copy_from"](host.ctypes.data, address + 8, 16)
    assert host[:5].tolist() == [2, 3, 4, 5, 0]
    operations["free"](address)


def test_results_stay_in_the_childs_memory(chip, arena) -> None:
    host = arena.array(4)
    host[:] = 1
    address = chip.operations["malloc"](16)
    there = ContinuousTensor.from_pointer(address, (4,), "float32", True)
    call(chip, ChipCallable(graph), (host, there), (5,))
    chip.operations["copy_from"](host.ctypes.data, address, 16)
    assert host.tolist() == [5] * 4


def test_addresses_that_were_not_allocated_are_refused(chip, arena) -> None:
    address = chip.operations["malloc"](64)
    for first, count in ((address - 4, 4), (address + 60, 2), (0x1000, 1)):
        bad = ContinuousTensor.from_pointer(first, (count,), "float32", True)
        with pytest.raises(UsageError, match="not in memory of this chip"):
            call(chip, ChipCallable(graph), (bad, arena.array(count)), (1,))
    with pytest.raises(UsageError, match="not in memory of this chip"):
        chip.operations["copy_to"](address, arena.array(65, "uint8").ctypes.data, 65)
    chip.operations["free"](address)
    with pytest.raises(UsageError, match="was freed"):
        chip.operations["free"](address)


def test_all_memory_is_freed_at_the_end(recwarn) -> None:
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        chip = _Chip(device, ChipTracing("L3/chip0", device))
        for _ in range(3):
            chip.operations["malloc"](1000)
        chip.free_all()
    assert [str(one.message) for one in recwarn] == []


def test_bits_reach_a_cpp_orchestration_unchanged() -> None:
    from pto_core.kernels import OrchestrationSource
    from pto_core.worker.children.chip import _scalars

    args = TaskArgs()
    args.add_scalar(-2)
    args.add_scalar(1.5)
    chip = ChipCallable(OrchestrationSource("graph.cpp"))
    values = _scalars(chip, args.view())
    assert all(isinstance(value, ctypes.c_uint64) for value in values)
    bits = np.array([value.value for value in values], np.uint64)
    assert bits[:1].view(np.int64)[0] == -2
    assert bits[1:].view(np.float64)[0] == 1.5
