"""Device memory: arrays of the API, views of them, and a check that nothing is leaked."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_core
import pto_core.config
from pto_core import Device, kernel
from pto_core.errors import ConfigError, DeviceMemoryError, UsageError


@kernel(core="aiv")
def increase(a):
    a += 1


def graph(rt, a):
    rt.publish(rt.add_task(increase, (a,)))


def test_round_trip(device: Device) -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex128, np.bool_):
        values = np.arange(24).reshape(2, 3, 4).astype(dtype)
        array = device.to_device(values)
        assert array.shape == values.shape
        assert array.dtype == values.dtype
        assert array.nbytes == values.nbytes
        out = np.zeros_like(values)
        assert array.to_host(out) is out
        assert (array.to_host() == values).all()
        assert (out == values).all()
        array.free()


def test_a_device_array_stays_on_the_device(device: Device) -> None:
    array = device.to_device(np.zeros(4, np.int32))
    for _ in range(3):
        report = device.run(graph, array)
        assert (report.copies_in, report.copies_out) == (0, 0)
    assert array.to_host().tolist() == [3, 3, 3, 3]
    array.free()


def test_views_share_memory(device: Device) -> None:
    whole = device.to_device(np.zeros((4, 3, 2), np.int32))
    device.run(graph, whole[1])
    device.run(graph, whole[2, 1:])
    device.run(graph, whole[-1, -1, 1])
    device.run(graph, whole.reshape(24)[:2])
    expected = np.zeros((4, 3, 2), np.int32)
    expected[1] += 1
    expected[2, 1:] += 1
    expected[-1, -1, 1] += 1
    expected[0, 0] += 1
    assert (whole.to_host() == expected).all()
    assert whole[3:1].shape == (0, 3, 2)
    whole.free()


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        (slice(None, None, 2), UsageError),
        (slice(None, None, -1), UsageError),
        (..., UsageError),
        (None, UsageError),
        (True, UsageError),
        ((0, 0, 0), UsageError),
        ("x", UsageError),
        (4, IndexError),
        (-5, IndexError),
    ],
)
def test_invalid_views_of_an_array_are_refused(
    device: Device, index: Any, kind: type[Exception]
) -> None:
    array = device.empty((4, 3))
    with pytest.raises(kind):
        array[index]
    array.free()


def test_a_copy_to_something_else(device: Device) -> None:
    array = device.empty((4, 3), "float32")
    for out in (np.zeros((3, 4), np.float32), np.zeros((4, 3))):
        with pytest.raises(UsageError, match="does not match"):
            array.to_host(out)
    with pytest.raises(UsageError, match="same number of elements"):
        array.reshape((4, 4))
    array.free()


def test_freed_arrays_are_refused(device: Device) -> None:
    array = device.empty(3)
    part = array[1:]
    array.free()
    array.free()
    for gone in (array, part):
        with pytest.raises(UsageError, match="after it was freed"):
            gone.to_host()
        with pytest.raises(UsageError, match="after it was freed"):
            device.run(graph, gone)


def test_arrays_of_another_device_are_refused(device: Device, runtime: str) -> None:
    with pto_core.open_device("a2a3sim", runtime=runtime) as other:
        array = other.empty(3)
        with pytest.raises(UsageError, match="belongs to another device"):
            device.run(graph, array)
        array.free()


def test_memory_is_reused(runtime: str) -> None:
    """A thousand runs, dropped arrays and failures succeed with memory for only a few of each."""
    settings = {"sim.memory_bytes": 64 << 20}
    values = np.zeros(1 << 20, np.uint8)

    def wasteful(rt, a):
        rt.empty(1 << 20, "uint8")
        graph(rt, a)
        if values[0] % 3 == 0:
            raise RuntimeError

    with pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as device:
        for turn in range(300):
            values[0] = turn % 256
            device.to_device(values)
            try:
                device.run(wasteful, values)
            except RuntimeError:
                assert turn % 256 % 3 == 0


def test_exhausted_memory_is_an_error(runtime: str) -> None:
    settings = {"sim.memory_bytes": 64 << 20}
    with pto_core.open_device("a2a3sim", runtime=runtime, settings=settings) as device:
        with pytest.raises(DeviceMemoryError):
            device.empty(1 << 30, "uint8")
        with pytest.raises(DeviceMemoryError):
            device.run(lambda rt: rt.empty(1 << 30, "uint8"))
        with pytest.raises(DeviceMemoryError):
            device.run(graph, np.zeros(65 << 20, np.uint8))
        values = np.zeros(3)
        device.run(graph, values)
        assert values.tolist() == [1, 1, 1]


def test_arrays_left_at_close_are_a_warning(runtime: str) -> None:
    device = pto_core.open_device("a2a3sim", runtime=runtime)
    array = device.empty(256, "float32")
    with pytest.warns(ResourceWarning, match=r"1 device arrays \(\d+ bytes\)"):
        device.close()
    device.close()
    with pytest.raises(UsageError, match="its device was closed"):
        array.to_host()
    with pytest.raises(UsageError, match="is closed"):
        device.run(graph, np.zeros(3))


def test_a_forgotten_device_is_closed(runtime: str, threads: Any) -> None:
    """The device is closed even if a kernel and an orchestration refer to it."""

    def use_and_forget() -> weakref.ref[Device]:
        device = pto_core.open_device("a2a3sim", runtime=runtime)

        @kernel(core="aiv")
        def knows_the_device(a):
            assert device

        def knows_it_too(rt, a):
            assert device
            rt.publish(rt.add_task(knows_the_device, (a,)))

        device.run(knows_it_too, np.zeros(3))
        return weakref.ref(device)

    before = threads.now()
    reference = use_and_forget()
    with pytest.warns(ResourceWarning, match="was never closed"):
        gc.collect()
    assert reference() is None
    assert not threads.since(before)


def test_nothing_is_left_after_close(runtime: str, threads: Any) -> None:
    def once() -> None:
        with pto_core.open_device("a2a3sim", runtime=runtime) as device:
            device.run(graph, np.zeros(3))

    once()
    before = threads.now()
    files = os.listdir("/proc/self/fd")
    for _ in range(5):
        once()
    assert not threads.since(before)
    assert len(os.listdir("/proc/self/fd")) == len(files)


def test_arguments_are_released(device: Device) -> None:
    values = np.zeros(3)
    reference = weakref.ref(values)
    device.run(graph, values)
    del values
    gc.collect()
    assert reference() is None


def test_devices_in_threads(runtime: str) -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        with pto_core.open_device("a2a3sim", runtime=runtime, device=number) as device:
            values = np.full(16, number, np.float64)
            for _ in range(20):
                device.run(graph, values)
            results[number] = values.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number + 20.0] * 16 for number in range(4)}


def test_a_forked_child_is_refused(device: Device) -> None:
    array = device.empty(3)
    child = os.fork()
    if child == 0:
        refusals = 0
        for call in (lambda: device.run(graph, 1), lambda: device.empty(3), array.to_host):
            try:
                call()
            except UsageError as error:
                refusals += "forked" in str(error)
        device.close()
        os._exit(refusals)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert device.run(graph, array).tasks == 1
    array.free()


def test_settings_are_accepted_in_three_forms(runtime: str) -> None:
    for given in (
        {"sim__seed": 7},
        {"settings": {"sim.seed": 7}},
        {"config": pto_core.config.load_with_plugins({"runtime": runtime, "sim.seed": 7})},
    ):
        with pto_core.open_device("a2a3sim", runtime=runtime, **given) as device:
            assert device.config["sim.seed"] == 7
    with pytest.raises(ConfigError, match=r"sim\.sed"):
        pto_core.open_device("a2a3sim", runtime=runtime, sim__sed=7)
    other = pto_core.config.load_with_plugins({"runtime": "host_build_graph"})
    with pytest.raises(UsageError, match="omit one of them"):
        pto_core.open_device(runtime="aicpu_build_graph", config=other)
