"""TaskArgs: the arguments that are added to them, and the view of a task."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import random
import sys
import weakref

import numpy as np
import pytest

from pto_core._worker import ContinuousTensor, TaskArgs, TensorArgType
from pto_core.errors import UsageError
from pto_core.kernels import DataType

TYPES = list(DataType)


def tensor_of(array) -> ContinuousTensor:
    return ContinuousTensor.from_array(array)


def shared_array(shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype, count).reshape(shape)


class Exported:
    """An array that only exports DLPack, like those of torch."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class TestContinuousTensor:
    @pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
    def test_has_the_shape_type_and_address_of_its_array(self, dtype) -> None:
        numbers = np.zeros((3, 4), dtype.numpy)
        tensor = tensor_of(numbers)
        assert tensor.shape == (3, 4)
        assert tensor.dtype is dtype
        assert tensor.address == numbers.ctypes.data
        assert tensor.nbytes == numbers.nbytes == 12 * dtype.nbytes
        assert not tensor.child_memory

    @pytest.mark.parametrize(
        "make",
        [bytearray, memoryview, lambda b: array.array("b", b), ctypes.create_string_buffer],
        ids=["bytearray", "memoryview", "array", "ctypes"],
    )
    def test_accepts_objects_with_the_buffer_protocol(self, make) -> None:
        tensor = tensor_of(make(b"12345678"))
        assert bytes(tensor.numpy()[:8]) == b"12345678"

    def test_accepts_objects_with_dlpack(self) -> None:
        numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
        tensor = tensor_of(Exported(numbers))
        assert tensor.address == numbers.ctypes.data
        assert tensor.shape == (2, 3)
        assert tensor.dtype is DataType.INT32

    def test_of_a_tensor_is_itself(self) -> None:
        tensor = tensor_of(np.zeros(3))
        assert tensor_of(tensor) is tensor

    def test_keeps_the_array(self) -> None:
        numbers = np.arange(3)
        gone = weakref.ref(numbers)
        tensor = tensor_of(numbers)
        del numbers
        assert tensor.numpy().tolist() == [0, 1, 2]
        del tensor
        gc.collect()
        assert gone() is None

    def test_prevents_its_array_from_growing(self) -> None:
        growing = bytearray(8)
        tensor = tensor_of(growing)
        with pytest.raises(BufferError):
            growing.append(1)
        del tensor
        growing.append(1)

    def test_of_a_pointer(self) -> None:
        numbers = shared_array((4, 2))
        tensor = ContinuousTensor.from_pointer(numbers.ctypes.data, (4, 2), DataType.FLOAT32)
        tensor.numpy()[:] = 5
        assert numbers.sum() == 40
        other = ContinuousTensor.from_pointer(64, 7, "int16", child_memory=True)
        assert (other.shape, other.dtype, other.child_memory) == ((7,), DataType.INT16, True)

    def test_a_tensor_of_size_zero_covers_nothing(self) -> None:
        tensor = ContinuousTensor.from_pointer(1, (2**32 - 1, 0, 2**32 - 1), np.float64)
        assert tensor.nbytes == 0
        key = ContinuousTensor.from_pointer(1, (5, 0, 7), np.float64)
        assert key.numpy().shape == (5, 0, 7)

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (3, "is 3 of type int"),
            (
                np.zeros((4, 4))[:, ::2],
                "not C-contiguous; copy it to an array of Worker.shared",
            ),
            (np.zeros((1,) * 6), "6 dimensions was passed; a task accepts at most 5"),
            (np.zeros(3, ">f4"), "machine; copy it to an array of Worker.shared_array"),
            (np.array([object()]), "data type dtype('O')"),
        ],
        ids=["number", "stepped", "dimensions", "byte order", "objects"],
    )
    def test_refuses_objects_that_are_not_valid_arrays(self, source, message) -> None:
        with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
            tensor_of(source)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((-1, (2,), 0), "address is -1"),
            ((2**64, (2,), 0), "address is 18446744073709551616"),
            (("x", (2,), 0), "address is 'x'"),
            ((8, (2,), 17), "data type code 17"),
            ((8, (2,), "text"), "'text' is not a data type"),
            ((8, (-2,), 0), "shape"),
            ((8, (2**32,), 0), "4294967296 elements"),
            ((2**64 - 4, (2,), 0), "exceeds the address space"),
            ((8, (2**31, 2**31, 2**31), 0), "exceeds the address space"),
        ],
    )
    def test_refuses_invalid_pointers(self, arguments, message) -> None:
        with pytest.raises(UsageError, match=message):
            ContinuousTensor.from_pointer(*arguments)

    def test_shows_only_memory_that_is_shared(self) -> None:
        private = np.zeros(1000)
        pointer = ContinuousTensor.from_pointer(private.ctypes.data, (1000,), np.float64)
        with pytest.raises(UsageError, match=r"other processes cannot access.*shared_array"):
            pointer.numpy()
        nothing = ContinuousTensor.from_pointer(4096, (1000,), np.float64)
        with pytest.raises(UsageError, match="this process has no memory at this address"):
            nothing.numpy()
        shared = shared_array((1024,))
        beyond = ContinuousTensor.from_pointer(shared.ctypes.data, (1 << 30,), np.float64)
        with pytest.raises(UsageError, match="not in shared memory"):
            beyond.numpy()

    def test_shows_no_child_memory_and_no_unallocated_memory(self) -> None:
        with pytest.raises(UsageError, match="memory of a chip child"):
            ContinuousTensor.from_pointer(64, 4, 0, True).numpy()
        with pytest.raises(UsageError, match="has no memory yet"):
            ContinuousTensor.from_pointer(0, 4, 0).numpy()

    def test_is_made_by_its_functions_only(self) -> None:
        with pytest.raises(TypeError):
            ContinuousTensor()


class TestTaskArgs:
    def test_counts_what_was_added(self) -> None:
        args = TaskArgs()
        assert (args.tensor_count, args.scalar_count) == (0, 0)
        tensor = tensor_of(np.zeros(3))
        for tag in TensorArgType:
            args.add_tensor(tensor, tag)
        args.add_tensor(tensor)
        args.add_tensor(tensor, tag=TensorArgType.OUTPUT)
        for number in range(9):
            args.add_scalar(number)
        assert (args.tensor_count, args.scalar_count) == (7, 9)
        tags = [args.tag(i) for i in range(7)]
        assert tags == [*TensorArgType, TensorArgType.INPUT, TensorArgType.OUTPUT]
        assert args.tensors == (tensor,) * 7
        assert args.scalars == tuple(range(9))
        assert repr(args) == "TaskArgs(7 tensors, 9 scalars)"

    def test_accepts_arrays_without_a_copy(self) -> None:
        numbers = np.arange(4)
        args = TaskArgs()
        args.add_tensor(numbers)
        assert args.tensors[0].address == numbers.ctypes.data

    def test_python_can_derive_from_it(self) -> None:
        class Named(TaskArgs):
            """Its instances have a dictionary, so the garbage collector tracks them."""

            def add_tensor(self, tensor, tag=TensorArgType.INPUT) -> None:
                super().add_tensor(tensor, tag)
                self.last = tensor

        class Plain(TaskArgs):
            __slots__ = ()

        for kind in (Named, Plain):
            made, array = kind(), np.ones(3)
            for _ in range(20):  # more arguments than a small object can store
                made.add_tensor(array, TensorArgType.INOUT)
            made.add_scalar(4)
            assert (made.tensor_count, made.scalars) == (20, (4,))
            assert made.view().tensor_count == 20
            assert isinstance(made, TaskArgs)
            if kind is Named:
                made.itself = made
            kept = sys.getrefcount(array)
            del made
            gc.collect()
            assert sys.getrefcount(array) < kept
            with pytest.raises(TypeError):
                kind(3)

    def test_grows(self) -> None:
        arrays = [np.full(2, i) for i in range(300)]
        args = TaskArgs()
        for numbers in arrays:
            args.add_tensor(numbers)
        for number in range(1000):
            args.add_scalar(number)
        view = args.view()
        assert [view.tensor(i)[0] for i in range(300)] == list(range(300))
        assert view.scalars == tuple(range(1000))

    @pytest.mark.parametrize("count", [0, 1, 8, 9, 300])
    def test_bytes_and_kinds_arrive_with_the_other_scalars(self, count) -> None:
        args, content = TaskArgs(), random.Random(count).randbytes(count)
        args.add_tensor(np.zeros(1))
        args.add_scalar(5)
        added = args.add_bytes(content)
        kinds = bytes(i % 16 for i in range(2 + added))
        assert not args.has_kinds
        args.add_kinds(kinds)
        view = args.view()
        assert (view.kinds(), view.scalar(0)) == (kinds, 5)
        assert view.content(1, added) == content.ljust(8 * added, b"\0")
        assert added == -(-count // 8)

    def test_refuses_to_read_kinds_that_were_not_added(self) -> None:
        args = TaskArgs()
        args.add_scalar(5)
        with pytest.raises(UsageError, match="do not state their kinds"):
            args.view().kinds()

    def test_refuses_a_tensor_after_a_scalar(self) -> None:
        args = TaskArgs()
        args.add_scalar(1)
        with pytest.raises(UsageError, match="a tensor after 1 scalar; add all tensors"):
            args.add_tensor(np.zeros(1))
        assert (args.tensor_count, args.scalar_count) == (0, 1)

    @pytest.mark.parametrize("tag", [None, 5, -1, "INPUT", 2**70])
    def test_refuses_objects_that_are_not_tags(self, tag) -> None:
        args = TaskArgs()
        with pytest.raises(UsageError, match=r"the tag of tensor 0 is .*TensorArgType"):
            args.add_tensor(np.zeros(1), tag)
        assert args.tensor_count == 0

    @pytest.mark.parametrize("tag", ["OUTPUT", "INOUT", "OUTPUT_EXISTING"])
    def test_refuses_to_write_read_only_arrays(self, tag) -> None:
        args = TaskArgs()
        with pytest.raises(UsageError, match="read-only"):
            args.add_tensor(b"12345678", TensorArgType[tag])
        args.add_tensor(b"12345678", TensorArgType.INPUT)
        assert not args.view().tensor(0).flags.writeable

    @pytest.mark.parametrize("value", ["x", None, np.zeros(3), [1]], ids=repr)
    def test_refuses_objects_that_are_not_scalars(self, value) -> None:
        args = TaskArgs()
        with pytest.raises(UsageError, match="is not a scalar"):
            args.add_scalar(value)
        assert args.scalar_count == 0

    @pytest.mark.parametrize("call", [(), (1, 2, 3)])
    def test_refuses_a_wrong_call(self, call) -> None:
        with pytest.raises(TypeError):
            TaskArgs().add_tensor(*call)
        with pytest.raises(TypeError):
            TaskArgs().add_tensor(np.zeros(1), tags=1)
        with pytest.raises(TypeError):
            TaskArgs(1)

    def test_refuses_an_invalid_index(self) -> None:
        args = TaskArgs()
        args.add_tensor(np.zeros(1))
        assert args.tag(-1) is TensorArgType.INPUT
        with pytest.raises(IndexError, match="there is no tensor 1: the task has 1"):
            args.tag(1)

    def test_releases_all_references(self) -> None:
        numbers = np.zeros(3)
        before = sys.getrefcount(numbers)
        args = TaskArgs()
        for _ in range(20):
            args.add_tensor(numbers)
        view = args.view()
        assert len(view.tensors) == 20
        del args, view
        assert sys.getrefcount(numbers) == before


class TestView:
    def make(self, *scalars) -> TaskArgs:
        args = TaskArgs()
        args.add_tensor(np.zeros((2, 2), np.float32))
        for scalar in scalars:
            args.add_scalar(scalar)
        return args

    def test_shows_the_arguments_of_its_moment(self) -> None:
        args = self.make(1)
        view = args.view()
        args.add_scalar(2)
        assert (view.tensor_count, view.scalar_count) == (1, 1)
        assert view.scalars == (1,)
        assert repr(view) == "TaskArgsView(1 tensors, 1 scalars)"

    def test_keeps_the_arrays(self) -> None:
        view = self.make().view()
        shown = view.tensor(0)
        shown[:] = 7
        assert view.tensors[0].numpy().tolist() == [[7, 7], [7, 7]]
        del view
        gc.collect()
        assert shown.sum() == 28

    def test_returns_the_same_tensors_for_a_submit(self) -> None:
        args = self.make()
        assert args.view().tensors == args.tensors

    @pytest.mark.parametrize(
        ("given", "dtype", "expected"),
        [
            (-1, None, 2**64 - 1),
            (-1, int, -1),
            (2**64 - 1, None, 2**64 - 1),
            (2**64 - 1, DataType.UINT64, 2**64 - 1),
            (-1.5, float, -1.5),
            (np.float32(-1.5), np.float32, -1.5),
            (np.float16(-1.5), DataType.FLOAT16, -1.5),
            (ctypes.c_int8(-3), None, 2**64 - 3),
            (ctypes.c_int8(-3), "int64", -3),
            (ctypes.c_int8(-3), "int8", -3),
            (2**32 - 3, "int32", -3),
            (ctypes.c_float(0.25), "float32", 0.25),
            (True, bool, True),
            (np.uint16(65535), None, 65535),
        ],
        ids=repr,
    )
    def test_returns_a_scalar_unchanged(self, given, dtype, expected) -> None:
        view = self.make(given).view()
        found = view.scalar(0) if dtype is None else view.scalar(0, dtype)
        assert (found, type(found)) == (expected, type(expected))

    @pytest.mark.parametrize(
        ("given", "dtype"),
        [(0.5, "float32"), (300, "uint8"), (-129, "int8"), (2, bool), (np.float32(2), "float16")],
    )
    def test_refuses_bits_that_no_number_of_the_type_has(self, given, dtype) -> None:
        with pytest.raises(
            UsageError, match=r"scalar 0 has the bits 0x.*no number of the data type"
        ):
            self.make(given).view().scalar(0, dtype)

    def test_refuses_an_invalid_index(self) -> None:
        view = self.make().view()
        with pytest.raises(IndexError, match="there is no scalar 0: the task has 0"):
            view.scalar(0)
        with pytest.raises(IndexError, match="there is no tensor 1: the task has 1"):
            view.tensor(1)
        with pytest.raises(TypeError):
            view.tensor("x")
