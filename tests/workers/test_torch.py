"""Tensors of torch itself; `.ci/install-torch` installs it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, In, InOut, Out, Scalar, TaskArgs, TensorArgType, task
from pto_core.errors import UsageError
from pto_core.kernels import OrchestrationSource

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8"]
NUMBERS = {"float32": 0.1, "float64": 0.1, "float16": 0.1, "bfloat16": 0.1}
NUMBERS |= {"int64": -3, "int16": -3, "uint8": 200, "bool": True}
BITS_OF = """
#include "runtime.h"
extern "C" int bits_of(Runtime*, uint64_t* args, int) {
  reinterpret_cast<uint64_t*>(args[0])[0] = args[1];
  reinterpret_cast<uint64_t*>(args[0])[1] = args[2];
  return 0;
}
"""
GOLDEN = """
import ctypes

import torch

__outputs__ = ["f"]


def generate_inputs(params):
    a, b = torch.full((16384,), 2.0), torch.full((16384,), 3.0)
    return [("a", a), ("b", b), ("f", torch.zeros(16384)), ("size", ctypes.c_int64(16384))]


def compute_golden(tensors, params):
    a, b = torch.as_tensor(tensors["a"]), torch.as_tensor(tensors["b"])
    tensors["f"][:] = (a + b + 1) * (a + b + 2)
"""


@pytest.fixture
def torch() -> Any:
    return importlib.import_module("torch")


@task
def double(x: In, out: Out) -> None:
    np.multiply(x, 2, out=out)


def test_the_page_names_the_version(torch: Any) -> None:
    version = torch.__version__.partition("+")[0]
    assert f"torch {version}" in (ROOT / "docs" / "levels.md").read_text()
    assert f"torch=={version}\n" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("dtype", DTYPES)
def test_children_use_memory_that_was_shared_before_the_start(make, torch, dtype) -> None:
    x = torch.arange(12, dtype=getattr(torch, dtype)).reshape(3, 4).share_memory_()
    out = torch.zeros_like(x).share_memory_()
    worker = make(num_sub_workers=2)
    for _ in range(2):
        with worker.session() as s:
            for row in range(3):
                s.submit(double, x[row], out[row])
        assert torch.equal(out, x * 2)
        x.add_(1)  # in place, and the children see it


def test_memory_that_was_shared_after_the_start_is_refused(make, torch) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    late = torch.ones(4).share_memory_()
    private = torch.ones(4)
    array = worker.shared_array((4,))
    with worker.session() as s:
        with pytest.raises(UsageError, match=r"mapped after the Worker started.*shared_array"):
            s.submit(double, late, array)
        with pytest.raises(UsageError, match="shared_array"):
            s.submit(double, private, array)
    shared = torch.from_numpy(array)
    shared.copy_(late)
    with worker.session() as s:
        s.submit(double, shared, array)
    assert shared.tolist() == [2.0] * 4


def test_spawned_children_use_the_memory_of_the_worker_only(make, torch) -> None:
    before = torch.ones(4).share_memory_()
    worker = make(num_sub_workers=1, start_method="spawn")
    out = torch.from_numpy(worker.shared_array((4,)))
    handle = worker.register(fill)
    args = TaskArgs()
    args.add_tensor(out, TensorArgType.OUTPUT)
    worker.run(lambda orch, a, cfg: orch.submit_sub(handle, args))
    assert out.tolist() == [3.0] * 4
    with worker.session() as s, pytest.raises(UsageError, match="shared_array"):
        s.submit(double, before, out)


def fill(args: TaskArgs) -> None:
    args.tensor(0).fill(3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks_are_those_of_ml_dtypes(make, torch, dtype) -> None:
    worker = make(num_sub_workers=1)
    given = torch.tensor([[1.5, -2.0], [0.25, 3.0]]).to(getattr(torch, dtype))
    x, out = worker.array(given), worker.shared_array((2, 2), dtype)
    assert x.dtype == out.dtype == np.dtype(getattr(ml_dtypes, dtype))
    on_memory = torch.from_numpy(out.view("uint8")).view(getattr(torch, dtype))

    @task
    def flip(x: In, out: Out) -> Any:
        out[...] = x.T
        return x.dtype.name

    with worker.session() as s:
        assert s.submit(flip, x[:, ::-1], on_memory).result() == dtype
    assert torch.equal(on_memory.float(), given.float().flip(1).T)
    with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
        device.run(lambda rt, a, out: rt.publish(rt.add_task(negate, (a, out))), given, on_memory)
    assert torch.equal(on_memory.float(), -given.float())


@pto_core.kernel(core="aiv")
def negate(x: In, out: Out) -> None:
    np.negative(x, out=out)


def test_bfloat16_arrives_with_its_type(make, torch) -> None:
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16).share_memory_()
    kept = torch.zeros(2).share_memory_()

    @task
    def check(x: In, out: Out) -> None:
        assert x.dtype == ml_dtypes.bfloat16
        out[:] = x

    with make(num_sub_workers=1).session() as s:
        s.submit(check, x, kept)
    assert kept.tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_reads_and_writes_tensors_in_host_memory(torch, dtype) -> None:
    @pto_core.kernel(core="aiv")
    def twice(x: In, out: Out) -> None:
        np.multiply(x, 2, out=out)

    def graph(rt: Any, x: Any, out: Any) -> None:
        rt.submit(twice, x, out)

    x = torch.arange(6, dtype=getattr(torch, dtype))
    out = torch.zeros_like(x)
    with pto_core.open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        device.run(graph, x, out)
    assert torch.equal(out, x * 2)


def test_a_case_may_have_inputs_of_torch(torch, tmp_path, shared_cache) -> None:
    golden = tmp_path / "golden.py"
    golden.write_text(GOLDEN)
    kernels = ROOT / "examples" / "01_vector" / "kernels"
    report = pto_core.run_case(
        kernels=kernels, golden=golden, settings={"cache_dir": str(shared_cache)}
    )
    report.check()


# ---- tensors without dimensions, which are numbers ----


def number_of(torch: Any, dtype: str) -> Any:
    return torch.tensor(NUMBERS[dtype], dtype=getattr(torch, dtype))


def bits_of(torch: Any, number: Any) -> int:
    """Return the 64 bits in which a number travels in its own type."""
    if not number.dtype.is_floating_point:
        return int(number) & (2**64 - 1)
    return int(number.view(getattr(torch, f"uint{8 * number.element_size()}")))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("runtime", ["host_build_graph", "tensormap_and_ringbuffer"])
def test_a_kernel_gets_a_tensor_without_dimensions_as_a_number(torch, dtype, runtime) -> None:
    number, received = number_of(torch, dtype), {}

    @pto_core.kernel(core="aiv")
    def plain(out: InOut, value: Scalar) -> None:
        received["plain"] = value

    @pto_core.kernel(core="aiv", signature=("inout", Scalar("float32")))
    def declared(out: Any, value: float) -> None:
        received["declared"] = value

    def graph(rt: Any, out: Any) -> None:
        for kernel in (plain, declared):
            if runtime == "host_build_graph":
                rt.add_task(kernel, (out, number))
            else:
                rt.submit(kernel, out, number)

    with pto_core.open_device("a2a3sim", runtime=runtime) as device:
        device.run(graph, torch.zeros(1))
    assert received == {"plain": number.item(), "declared": number.to(torch.float32).item()}
    assert type(received["plain"]) is type(number.item())


@pytest.fixture
def chip(tmp_path: Path) -> ChipCallable:
    """Return an orchestration that writes the bits of its two numbers."""
    source = tmp_path / "bits.cpp"
    source.write_text(BITS_OF)
    signature = ("out", "scalar", Scalar("float32"))
    return ChipCallable(OrchestrationSource(source, "bits_of"), signature=signature)


def test_orchestrations_get_such_tensors_in_their_own_or_the_declared_type(
    make, torch, chip
) -> None:
    worker = make(runtime="host_build_graph", device_ids=[0])
    worker.register(chip)
    at_level_3 = worker.shared_array((2,), "uint64")
    numbers = [number_of(torch, dtype) for dtype in NUMBERS]
    numbers.append(torch.tensor(0.1, requires_grad=True))
    numbers.append(torch.arange(3, dtype=torch.bfloat16).sum())
    with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
        for number in numbers:
            wanted = [bits_of(torch, one) for one in (number, number.to(torch.float32))]
            at_level_2 = np.zeros(2, "uint64")
            device.run(chip, at_level_2, number, number)
            with worker.session() as session:
                session.submit(chip, at_level_3, number, number)
            assert at_level_2.tolist() == at_level_3.tolist() == wanted, number


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_task_gets_such_a_tensor_as_a_number(make, torch, dtype) -> None:
    @task
    def keep(out: Out, plain: Scalar, declared: Scalar("float32")) -> None:
        out[:] = plain, declared
        assert type(declared) is float

    number = number_of(torch, dtype)
    worker = make(num_sub_workers=1)
    out = torch.zeros(2, dtype=torch.float64).share_memory_()
    with worker.session() as session:
        session.submit(keep, out, number, number)
    assert out.tolist() == [float(number), float(number.to(torch.float32))]


def test_a_tensor_that_does_not_fit_is_refused(make, torch, chip) -> None:
    worker = make(runtime="host_build_graph", device_ids=[0])
    narrow = ChipCallable(chip.orchestration, signature=("out", Scalar("int8"), Scalar(float)))
    worker.register(narrow)
    out = worker.shared_array((2,), "uint64")
    with worker.session() as session:
        with pytest.raises(UsageError, match=r"tensor\(300\), but its declared type int8 has"):
            session.submit(narrow, out, torch.tensor(300), 0.5)
        with pytest.raises(UsageError, match=r"tensor\(\[1\]\) of type Tensor.* a scalar"):
            session.submit(narrow, out, torch.tensor([1]), 0.5)
