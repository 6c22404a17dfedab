"""The arguments that a run accepts, their form in a kernel, and the arguments that it refuses."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_core import DataType, Device, In, Out, kernel
from pto_core.device.foreign_tensors import addresses_of
from pto_core.errors import TaskFailedError, UsageError

U64 = 2**64


def capture(device: Device, *args: Any) -> list[Any]:
    """Run one task on ``args`` and return the arguments that its kernel received."""
    seen: list[Any] = []

    @kernel(core="aiv")
    def receive(*values):
        seen.extend(v.copy() if isinstance(v, np.ndarray) else v for v in values)

    def graph(rt, *given):
        rt.publish(rt.add_task(receive, given))

    device.run(graph, *args)
    return seen


def double(device: Device, *args: Any) -> None:
    """Run one task that doubles every array in place."""

    @kernel(core="aiv")
    def twice(*values):
        for value in values:
            value *= 2

    def graph(rt, *given):
        rt.publish(rt.add_task(twice, given))

    device.run(graph, *args)


class DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DlManaged(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(DlManaged))
DlManaged._fields_ = (("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", DELETER))

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class ForeignArray:
    """An array that exports its memory by DLPack 0 only, and counts the calls of its deleter."""

    def __init__(self, values: np.ndarray, code: int = 2, **fields: Any) -> None:
        self.memory = values
        self.given_back = 0
        self._shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        self._strides = (ctypes.c_int64 * values.ndim)(
            *(stride // values.itemsize for stride in values.strides)
        )
        tensor = DlTensor(
            data=values.ctypes.data,
            device_type=1,
            ndim=values.ndim,
            code=code,
            bits=values.itemsize * 8,
            lanes=1,
            shape=self._shape,
            strides=self._strides,
        )
        for name, value in fields.items():
            setattr(tensor, name, value)
        self._managed = DlManaged(tensor, None, DELETER(self._give_back))

    def _give_back(self, _: Any) -> None:
        self.given_back += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._managed.tensor.device_type, 0)

    def __dlpack__(self) -> Any:
        return new_capsule(ctypes.addressof(self._managed), b"dltensor", None)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (7, 7),
        (-7, -7),
        (2**63, 2**63),
        (U64 - 1, U64 - 1),
        (True, True),
        (0.1, 0.1),
        (ctypes.c_int8(-3), -3),
        (ctypes.c_uint16(65535), 65535),
        (ctypes.c_bool(True), True),
        (ctypes.c_float(1.5), 1.5),
        (ctypes.c_double(0.1), 0.1),
        (np.int16(-9), -9),
        (np.float16(0.25), 0.25),
        (np.float32(1.5), 1.5),
        (np.float64(0.1), 0.1),
        (np.bool_(False), False),
    ],
)
def test_scalars_arrive_as_numbers(device: Device, given: Any, seen: Any) -> None:
    (found,) = capture(device, given)
    assert found == seen
    assert type(found) is type(seen)


def test_scalars_are_passed_as_bits(device: Device) -> None:
    """A C++ kernel sees sign-extended integers and zero-extended bit patterns of floats."""
    got = []

    def graph(rt, *given):
        got.extend(given)

    device.run(graph, ctypes.c_int8(-3), ctypes.c_float(1.0), 2.5)
    assert isinstance(got[0], ctypes.c_int8)
    assert got[2] == 2.5


@pytest.mark.parametrize("data_type", list(DataType))
def test_every_data_type_is_copied_in_and_out(device: Device, data_type: DataType) -> None:
    values = np.array([[0, 1, 2], [3, 4, 5]]).astype(data_type.numpy)
    out = np.zeros_like(values)

    @kernel(core="aiv")
    def copy(a, b):
        assert a.dtype == data_type.numpy
        b[:] = a

    def graph(rt, a, b):
        rt.publish(rt.add_task(copy, (a, b)))

    device.run(graph, values, out)
    assert (out == values).all()
    assert out.dtype == values.dtype


def test_shapes_arrive(device: Device) -> None:
    arrays = [np.ones(shape, np.float32) for shape in ((), (3,), (2, 0), (1, 2, 3, 4, 5, 6))]
    assert [found.shape for found in capture(device, *arrays)] == [a.shape for a in arrays]


def test_one_kernel_sees_each_task_with_its_own_shapes(device: Device) -> None:
    seen = []

    @kernel(core="aiv")
    def check(index, value):
        seen.append((index, value.shape))

    def graph(rt, *arrays):
        for index, one in enumerate(arrays):
            rt.publish(rt.add_task(check, (index, one)))

    device.run(graph, *(np.zeros((n % 7, 3), np.int8) for n in range(100)))
    assert sorted(seen) == [(n, (n % 7, 3)) for n in range(100)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: array.array("f", [1, 2, 3]),
        lambda: memoryview(bytearray(b"\1\2\3")),
        lambda: (ctypes.c_int32 * 3)(1, 2, 3),
        lambda: bytearray(b"\1\2\3"),
        lambda: np.array([1, 2, 3], ml_dtypes.bfloat16),
        lambda: np.array(5, np.int64),
    ],
)
def test_buffers_are_changed_in_place(device: Device, make: Callable[[], Any]) -> None:
    given = make()
    before = np.array(given)
    double(device, given)
    assert (np.array(given) == before * 2).all()


def test_dlpack_is_changed_in_place_and_released(device: Device) -> None:
    given = ForeignArray(np.array([[1, 2], [3, 4]], np.float32))
    double(device, given)
    assert given.memory.tolist() == [[2, 4], [6, 8]]
    assert given.given_back == 1


def test_dlpack_bfloat16_and_offset(device: Device) -> None:
    memory = np.array([9, 1, 2], ml_dtypes.bfloat16)
    given = ForeignArray(memory.view(np.uint16)[:2], code=4, byte_offset=2)
    double(device, given)
    assert memory.tolist() == [9, 2, 4]


def test_a_tensor_on_a_device_is_passed_by_the_address_of_its_first_element() -> None:
    values = np.zeros((1, 4), "float32")
    row = np.lib.stride_tricks.as_strided(values, strides=(4, 4))  # a stride that has no effect
    given = ForeignArray(row, device_type=12, byte_offset=8)
    replaced, _ = addresses_of((3, given), 12, 0)
    assert replaced == (3, values.ctypes.data + 8)


def test_dlpack_of_numpy_itself(device: Device) -> None:
    class OnlyDlpack:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.values.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.values.__dlpack_device__()

    values = np.array([1.0, 2.0])
    double(device, OnlyDlpack(values))
    assert values.tolist() == [2.0, 4.0]
    values.flags.writeable = False
    capture(device, OnlyDlpack(values))

    def graph(rt, a: Out): ...

    with pytest.raises(UsageError, match="read-only"):
        device.run(graph, OnlyDlpack(values))


def test_the_advice_on_layout_follows_the_use(device: Device) -> None:
    def reads(rt, a: In): ...

    def writes(rt, a: Out): ...

    stepped = np.zeros((4, 4), np.float32)[:, ::2]
    layout = "is not C-contiguous; pass a C-contiguous copy"
    copy_back = ", and copy the result back"
    for refused, is_read_only in (
        (lambda: device.run(reads, stepped), True),
        (lambda: device.run(reads, ForeignArray(stepped)), True),
        (lambda: device.run(writes, stepped), False),
        (lambda: device.to_device(stepped), True),
        (lambda: device.to_device(np.zeros((4, 2), np.float32)).to_host(stepped), False),
    ):
        with pytest.raises(UsageError, match=layout) as caught:
            refused()
        assert str(caught.value).endswith(layout) == is_read_only
        assert (copy_back in str(caught.value)) != is_read_only


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ForeignArray(np.zeros((4, 4), np.float32)[:, ::2]), "C-contiguous"),
        (lambda: ForeignArray(np.zeros(4, np.float32), device_type=2), "on a device"),
        (lambda: ForeignArray(np.zeros(4, np.float32), lanes=4), "data type"),
        (lambda: ForeignArray(np.zeros(4, np.float32), code=9), "data type"),
        (lambda: np.zeros((4, 4))[:, ::2], "C-contiguous"),
        (lambda: np.zeros((4, 4)).T[:2], "C-contiguous"),
        (lambda: memoryview(b"abcd")[::2], "C-contiguous"),
        (lambda: np.zeros(3, ">f4"), "data type"),
        (lambda: np.array([object()]), "data type"),
        (lambda: np.array(["text"]), "data type"),
        (lambda: [1.0, 2.0], "of type list"),
        (lambda: "text", "of type str"),
        (lambda: None, "of type NoneType"),
        (lambda: U64, "64 bits"),
        (lambda: -(2**63) - 1, "64 bits"),
    ],
)
def test_refused_arguments_are_named(device: Device, make: Callable[[], Any], message: str) -> None:
    ran = []

    def graph(rt, first, second):
        ran.append(1)

    given = make()
    with pytest.raises(UsageError, match=message) as caught:
        device.run(graph, 1, given)
    if not isinstance(given, int):
        assert "argument 1 ('second') of orchestration 'graph'" in str(caught.value)
    if isinstance(given, ForeignArray):
        assert given.given_back == 1
    assert not ran
    device.run(graph, 1, 2)
    assert ran


def test_the_number_of_arguments_is_checked(device: Device) -> None:
    def graph(rt, a, b=0): ...

    with pytest.raises(UsageError, match="at least 1 arguments, but the run passed 0"):
        device.run(graph)
    with pytest.raises(UsageError, match="at most 2 arguments, but the run passed 3"):
        device.run(graph, 1, 2, 3)
    device.run(graph, 1)


def test_directions_determine_the_copies(device: Device) -> None:
    def graph(rt, a: In, b: Out, c): ...

    a, b, c = np.ones(4, np.float32), np.ones(8, np.float32), np.ones(16, np.float32)
    c.flags.writeable = False
    report = device.run(graph, a, b, c)
    assert (report.copies_in, report.bytes_in) == (2, 16 + 64)
    assert (report.copies_out, report.bytes_out) == (1, 32)


def test_read_only_outputs_are_refused(device: Device) -> None:
    def graph(rt, result: Out): ...

    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(UsageError, match=r"argument 0 \('result'\).*read-only"):
        device.run(graph, frozen)


def test_one_array_passed_twice_is_one_buffer(device: Device) -> None:
    @kernel(core="aiv")
    def increase(a):
        a += 1

    def graph(rt, a, b):
        assert a.address == b.address
        rt.publish(rt.add_task(increase, (a,)))

    values = np.zeros(4, np.int32)
    report = device.run(graph, values, values)
    assert values.tolist() == [1, 1, 1, 1]
    assert (report.copies_in, report.copies_out) == (1, 1)


def test_an_output_that_is_also_an_input_is_copied_in(device: Device) -> None:
    @kernel(core="aiv")
    def increase(a):
        a += 1

    def graph(rt, result: Out, x: In):
        rt.publish(rt.add_task(increase, (result,)))

    values = np.full(4, 5, np.int32)
    report = device.run(graph, values, values)
    assert values.tolist() == [6, 6, 6, 6]
    assert (report.copies_in, report.copies_out) == (1, 1)


def test_partly_overlapping_outputs_are_refused(device: Device) -> None:
    def graph(rt, a, b): ...

    def reading(rt, a: In, b: In): ...

    values = np.zeros(10)
    with pytest.raises(UsageError, match=r"argument 1 .* overlaps argument 0"):
        device.run(graph, values[:6], values[4:])
    device.run(graph, values[:5], values[5:])
    device.run(reading, values[:6], values[4:])


# Invariant: Outputs are copied to the host only after success.
def test_nothing_is_copied_back_after_an_error(device: Device) -> None:
    @kernel(core="aiv")
    def spoil(a):
        a[:] = 9
        raise ValueError("no")

    def graph(rt, a):
        rt.publish(rt.add_task(spoil, (a,)))

    values = np.zeros(4)
    with pytest.raises(Exception, match="raised ValueError"):
        device.run(graph, values)
    assert values.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_arrays(device: Device, dtype: str) -> None:
    @kernel(core="aiv")
    def conjugate(a, out):
        np.conjugate(a, out=out)

    out = np.zeros(3, dtype)
    given = np.array([1 + 2j, 3j, -1], dtype)
    device.run(lambda rt, a, out: rt.publish(rt.add_task(conjugate, (a, out))), given, out)
    assert (out == given.conjugate()).all()


def test_data_types_that_a_device_does_not_accept(device: Device) -> None:
    small = np.ones(3, ml_dtypes.float8_e3m4)
    swapped = np.ones(3, np.dtype("f4").newbyteorder("S"))
    for given, message in (
        (small, "has data type .*float8_e3m4.*use float16/32/64"),
        (swapped, "byte order is not that of this machine"),
        (memoryview(swapped), "byte order is not that of this machine"),
    ):
        with pytest.raises(UsageError, match=message):
            device.run(lambda rt, a: None, given)
    with pytest.raises(UsageError, match="byte order is not that of this machine"):
        device.empty(3, swapped.dtype)


def test_a_write_to_a_read_only_argument_is_never_lost_in_silence(device: Device) -> None:
    """The direction is undeclared: kernels may read the array, and a write is reported at once."""
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    seen: list[float] = []

    @kernel(core="aiv")
    def read(x):
        seen.append(float(x.sum()))

    @kernel(core="aiv")
    def write(x):
        x += 1

    device.run(lambda rt, a: rt.publish(rt.add_task(read, (a[1:],))), fixed)
    assert seen == [6.0]
    with pytest.raises(TaskFailedError, match="read-only"):
        device.run(lambda rt, a: rt.publish(rt.add_task(write, (a[1:],))), fixed)
