"""Test checking mode: each output in a heap ring is a buffer with guards around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_core import ChipCallable, Device, In, InOut, Out, kernel, open_device
from pto_core.errors import AddressError, DeadlockError
from pto_core.kernels import OrchestrationSource

KIB = 1024
MODES = ("threads", "deterministic")


@kernel(core="aiv")
def greedy(out: Out):
    """Write one element past the end of the output."""
    np.lib.stride_tricks.as_strided(out, (out.size + 1,))[...] = 1


@kernel(core="aiv")
def fill(out: Out, value):
    out[...] = value


@kernel(core="aiv")
def add(left: In, right: In, out: Out):
    out[...] = left + right


def opened(mode: str, check: bool = True, **sizes: str) -> Device:
    settings: dict[str, Any] = {f"pto2.{key}": value for key, value in sizes.items()}
    return open_device(
        "a2a3sim", runtime="pto2", settings={**settings, "sim.mode": mode, "sim.check": check}
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [16, 256, 300])
def test_a_write_past_an_output_is_found(mode, count):
    def graph(rt):
        with rt.scope():
            rt.submit(fill, rt.tensor(100, "float32"), 2)
            rt.submit(greedy, rt.tensor(count, "float32"))

    with opened(mode) as device:
        with pytest.raises(AddressError, match="kernel greedy") as caught:
            device.run(graph)
        assert caught.value.task == 1 << 2 | 1
        assert f"byte {4 * count} of the buffer" in str(caught.value)
        assert device.run(lambda rt: rt.submit(fill, rt.tensor(16, "float32"), 1)).tasks == 1
    with opened(mode, check=False) as device:
        assert device.run(graph).tasks == 2


@pytest.mark.parametrize("mode", MODES)
def test_results_are_the_same_around_a_small_heap(mode):
    data = np.zeros((40, 300), np.float32)

    def graph(rt, rows):
        for row in range(40):
            with rt.scope():
                left, right = rt.tensor(300, "float32"), rt.tensor(300, "float32")
                rt.submit(fill, left, row)
                rt.submit(fill, right, 1)
                rt.submit(add, left, right, rows[row])

    for check in (True, False):
        data[...] = 0
        with opened(mode, check=check, heap="6K") as device:
            device.run(graph, data)
        assert (data == np.arange(1, 41, dtype=np.float32)[:, None]).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", [True, False])
def test_sizes_and_advice_stay_the_same(mode, check):
    def graph(rt):
        for _ in range(3):
            rt.submit(fill, rt.tensor(16 * KIB, "uint8"), 1)

    with opened(mode, check=check, heap="32K") as device:
        with pytest.raises(DeadlockError) as caught:
            device.run(graph)
        assert (caught.value.current, caught.value.needed) == (32 * KIB, 48 * KIB)
    with opened(mode, check=check, heap="48K") as device:
        assert device.run(graph).tasks == 3


ADDRESSES = """
#include "pto_orchestration_api.h"

void build(PTO2Runtime* rt, uint64_t* args, int) {
  uint64_t shapes[1] = {args[2]};
  void* address = reinterpret_cast<void*>(args[1] != 0 ? args[1] : args[0]);
  Tensor whole = make_tensor_external(address, shapes, 1);
  uint64_t part[1] = {args[3]};
  uint64_t offset[1] = {args[2] - args[3]};
  PTOParam params[] = {make_inout_param(whole.view(part, offset))};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
}
"""


@kernel(core="aiv")
def increase(data: InOut):
    data[...] += 1


def test_an_address_must_lie_in_a_buffer_with_all_of_its_view(tmp_path, shared_cache):
    source = tmp_path / "build.cpp"
    source.write_text(ADDRESSES)
    chip = ChipCallable(OrchestrationSource(source, "build"), [(0, increase)])
    settings = {"sim.check": True, "cache_dir": str(shared_cache)}
    data = np.zeros(16, np.float32)
    for part in (16, 1):
        with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
            data[...] = 0
            device.run(chip, data, 0, 16, part)
            assert data.sum() == part
    for address, count, part, message in (
        (0, 17, 17, "68 bytes at 0x[0-9a-f]+ exceed the buffer of 64 bytes"),
        (0, 17, 1, "at most 0"),
        (0x1234, 16, 16, "0x1234 is not an address of device memory"),
    ):
        with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
            with pytest.raises(AddressError, match=message) as caught:
                device.run(chip, data, address, count, part)
            assert "build.cpp:11: parameter 0 (INOUT) of task 0 of ring 0" in str(caught.value)
