"""Test the Worker of level 2: programs, submits, kinds of tensors, ring sizes, and mistakes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core.errors import PtoError, UsageError, WorkerClosedError
from simpler.task_interface import (
    CallConfig,
    ChipCallable,
    ChipStorageTaskArgs,
    ChipTensor,
    CoreCallable,
    DataType,
    TaskArgs,
    TensorArgType,
    scalar_to_uint64,
)
from simpler.worker import RunHandle, Worker
from simpler_setup import KernelCompiler

PROGRAMS = Path(__file__).parent / "workers"
SIZE = 64


@pytest.fixture(scope="module")
def vector() -> ChipCallable:
    sys.path.insert(0, str(PROGRAMS))
    try:
        import vector_add
    finally:
        sys.path.remove(str(PROGRAMS))
    return vector_add.vector()


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with Worker(level=2, platform="a2a3sim", runtime="host_build_graph", device_id=1) as opened:
        opened.init()
        yield opened


def arguments(a: Any, b: Any, out: Any, second: object = 2) -> TaskArgs:
    args = TaskArgs()
    for tensor in (a, b, out):
        args.add_tensor(tensor)
    args.add_scalar(scalar_to_uint64(ctypes.c_float(second)))
    return args


def arrays(a: float = 2, b: float = 3) -> list[np.ndarray]:
    return [np.full(SIZE, value, np.float32) for value in (a, b, 0)]


@pytest.mark.parametrize("name", ["hello_worker", "worker_malloc", "vector_add"])
def test_a_program_runs(name: str) -> None:
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), "-p", "a2a3sim", "-d", "0"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    printed = {"hello_worker": "hello from a2a3sim 0", "worker_malloc": "equal"}
    assert outcome.stdout.strip() == printed.get(name, "f = 42.0")


def test_submits_run_in_order(worker: Any, vector: ChipCallable) -> None:
    handle = worker.register(vector)
    a, b, out = arrays()
    runs = [worker.submit(handle, arguments(out, b, out, second)) for second in (2, 3)]
    worker.run(handle, arguments(out, b, out, 0))
    assert all(isinstance(run, RunHandle) and run.done() for run in runs)
    expected = 0.0
    for second in (2, 3, 0):
        expected = (expected + 3 + 1) * (expected + 3 + second)
    assert (out == np.float32(expected)).all()
    assert runs[0].result() is None
    worker.unregister(handle)
    with pytest.raises(UsageError, match="no handle of this Worker"):
        worker.submit(handle, arguments(a, b, out))


def test_tensors_of_each_kind(worker: Any, vector: ChipCallable) -> None:
    handle = worker.register(vector)
    a, b, _ = arrays()
    buffer = worker.malloc(4 * 4 * SIZE)
    worker.copy_to(buffer, np.zeros(4 * SIZE, np.float32))
    host = worker.create_buffer(4 * SIZE)
    # one tensor of the chip with strides, and one of the host in a buffer
    every_other = buffer.tensor((SIZE,), DataType.FLOAT32, (2,), 8)
    args = arguments(worker.make_tensor_arg(a, (SIZE,), DataType.FLOAT32), b, every_other)
    worker.run(handle, args)
    got = np.zeros(4 * SIZE, np.float32)
    worker.copy_from(got, buffer)
    assert (got[2 : 2 + 2 * SIZE : 2] == 42).all()
    assert np.count_nonzero(got) == SIZE
    args = ChipStorageTaskArgs()
    args.add_tensor(ChipTensor(a.ctypes.data, (SIZE,), DataType.FLOAT32))
    args.add_tensor(ChipTensor(buffer.base + 8, (SIZE,), DataType.FLOAT32, device=True))
    args.add_tensor(host.tensor((SIZE,), DataType.FLOAT32))
    args.add_scalar(scalar_to_uint64(2.0))
    worker.run(handle, args)
    total = 2 + np.where(np.arange(SIZE) % 2, 0, 42)
    assert (np.asarray(host).view(np.float32) == (total + 1) * (total + 2)).all()
    worker.free(buffer)
    with pytest.raises(UsageError, match="does not lie in memory that malloc"):
        worker.run(handle, args)
    with pytest.raises(UsageError, match="was freed"):
        worker.copy_from(got, buffer)


@pytest.mark.torch
def test_torch_tensors(worker: Any, vector: ChipCallable) -> None:
    import torch

    handle = worker.register(vector)
    a, b, out = (torch.full((SIZE,), value) for value in (2.0, 3.0, 0.0))
    worker.run(handle, arguments(a, b, worker.make_tensor_arg(out)))
    assert bool((out == 42).all())
    half = worker.make_tensor_arg(torch.zeros(4, dtype=torch.bfloat16))
    assert (half.dtype, half.nbytes) == (DataType.BFLOAT16, 8)
    with pytest.raises(UsageError, match="not contiguous"):
        worker.make_tensor_arg(torch.zeros(4, 4).T)


def test_ring_sizes_of_a_run(worker: Any, vector: ChipCallable) -> None:
    handle = worker.register(vector)
    a, b, _ = arrays()
    out = worker.malloc(4 * SIZE)
    config = CallConfig(aicpu_thread_num=2)
    config.runtime_env.ring_task_window = 16
    config.runtime_env.ring_heap = [65536] * 4
    worker.run(handle, arguments(a, b, out.tensor((SIZE,))), config)
    got = np.zeros(SIZE, np.float32)
    worker.copy_from(got, out)
    assert (got == 42).all()
    config.runtime_env.ring_heap = 1024
    large = [np.zeros(4096, np.float32) for _ in range(3)]
    with pytest.raises(PtoError, match="heap"):
        worker.run(handle, arguments(*large), config)
    worker.free(out)


def test_an_error_that_nobody_waited_for(vector: ChipCallable) -> None:
    worker = Worker(level=2, platform="a2a3sim", runtime="tensormap_and_ringbuffer", device_id=2)
    handle = worker.register(vector)
    a, b, out = arrays()
    good = worker.submit(handle, arguments(a, b, out))
    args = arguments(a, b, out)
    args.add_scalar(1)
    wrong = worker.submit(handle, args)  # one argument too many
    with pytest.raises(PtoError, match="expects 4 arguments"):
        wrong.wait()
    assert wrong.done()
    good.wait()
    worker.submit(handle, args)
    with pytest.raises(PtoError, match="expects 4 arguments"):
        worker.close()
    worker.close()
    with pytest.raises(WorkerClosedError):
        worker.malloc(8)
    with pytest.raises(WorkerClosedError):
        worker.submit(handle, args)


def test_an_exit_in_the_block_waits_for_the_runs(vector: ChipCallable) -> None:
    a, b, out = arrays()
    worker = Worker(level=2, platform="a2a3sim", runtime="tensormap_and_ringbuffer", device_id=2)
    run = worker.submit(worker.register(vector), arguments(a, b, out))
    worker.__exit__(SystemExit, SystemExit(), None)  # of sys.exit()
    assert run.done()
    assert (out == 42).all()


@pytest.mark.parametrize(("level", "place"), [(2, "wait"), (2, "close"), (3, "block")])
def test_an_interrupt_ends_a_run_that_does_not_return(level: int, place: str) -> None:
    command = [sys.executable, str(PROGRAMS / "endless.py"), str(level), place]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "submitted\n"
        os.killpg(program.pid, signal.SIGINT)
        try:
            # also waits for all processes of the program, because they have these pipes
            output = program.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 130 or program.returncode == -signal.SIGINT, output
    assert output[1].rstrip().endswith("KeyboardInterrupt"), output


def test_a_kernel_given_as_bytes_has_the_name_of_its_source() -> None:
    source = PROGRAMS / "kernels" / "endless.cpp"
    kernels = [
        CoreCallable.build([], binary)
        for binary in (KernelCompiler("a2a3sim").compile_incore(source), b"other", source)
    ]
    chip = ChipCallable.build([], "program", b"library", list(enumerate(kernels)))
    assert [one.name for one in chip.children.values()] == ["endless", "kernel_1", "endless"]


def test_a_library_is_complete_when_a_thread_gets_its_path() -> None:
    binary = os.urandom(1 << 25)

    def size_of_library(_: int) -> int:
        path: Path = CoreCallable.build([], binary).binary
        return path.stat().st_size

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(size_of_library, range(64))) == {len(binary)}


def test_values() -> None:
    codes = {"UINT16": 9, "UINT32": 10, "BOOL": 11, "FP8E4M3FN": 12}
    assert {name: DataType[name].value for name in codes} == codes
    assert DataType.of("bool") is DataType.BOOL
    with pytest.raises(UsageError, match="float64 is no data type of a tensor"):
        DataType.of(np.float64)
    assert DataType.FP4E2M1.numpy == np.uint8
    for one in (1.0, np.float32(1), np.float16(1), ctypes.c_float(1)):
        assert scalar_to_uint64(one) == 0x3F80_0000
    assert [scalar_to_uint64(one) for one in (True, np.int8(-1))] == [1, 2**64 - 1]
    args = arguments(*arrays(), -1)
    assert (args.tensor_count(), args.scalar_count()) == (3, 1)
    assert (args.tensor(1).shapes, args.tag(2)) == ((SIZE,), TensorArgType.INPUT)
    assert args.scalar(0) == 0xBF80_0000
    config = CallConfig(enable_chip_swimlane=9)
    with pytest.raises(UsageError, match="enable_l2_swimlane is 9"):
        config.validate()


def test_mistakes(worker: Any) -> None:
    with pytest.raises(UsageError, match="level is 4; use 2 or 3"):
        Worker(level=4)
    with pytest.raises(UsageError, match="use tensormap_and_ringbuffer or host_build_graph"):
        Worker(level=2, runtime="aicpu_build_graph")
    buffer = worker.create_buffer(16)
    with pytest.raises(UsageError, match="does not lie in its buffer of 16 bytes"):
        buffer.tensor((2, 2), DataType.FLOAT32, byte_offset=4)
    with pytest.raises(UsageError, match="exceeds its buffer"):
        worker.copy_to(buffer, np.zeros(17, np.uint8))
    with pytest.raises(UsageError, match="at most 1024"):
        ChipCallable.build([], "entry", b"", [(0, CoreCallable.build([], b""))] * 1025)
