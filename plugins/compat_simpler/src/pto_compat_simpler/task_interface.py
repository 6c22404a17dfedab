"""The values of ``simpler.task_interface``: types, buffers, tensors, arguments and callables."""

from __future__ import annotations

import atexit
import ctypes
import enum
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_core import chip as core
from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.output_files import replacing
from pto_core.published import TensorArgType as TensorArgType

_MOST_CHILDREN = 1024
# Both variants have the same calls, and here they are the same runtime. Only the graphs of
# host_build_graph exist as a whole before their tasks run, which no result shows.
RUNTIMES = {
    "tensormap_and_ringbuffer": "tensormap_and_ringbuffer",
    "host_build_graph": "tensormap_and_ringbuffer",
}


def runtime_of(name: str | None) -> str:
    """Return the runtime that runs programs for a published runtime variant."""
    chosen = "tensormap_and_ringbuffer" if name is None else name
    if chosen not in RUNTIMES:
        raise UsageError(
            f"runtime={name!r}: use {' or '.join(RUNTIMES)}", name="runtime", value=name
        )
    return RUNTIMES[chosen]


class DataType(enum.IntEnum):
    """The type of an element, with the codes of August 2026."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    BFLOAT16 = 6
    INT64 = 7
    UINT64 = 8
    UINT16 = 9
    UINT32 = 10
    BOOL = 11
    FP8E4M3FN = 12
    FP8E8M0 = 13
    FP4E2M1 = 14

    @property
    def numpy(self) -> np.dtype[Any]:
        """The data type of NumPy; bytes for FP8E8M0 and FP4E2M1."""
        plain = {"FP8E4M3FN": "FLOAT8_E4M3FN", "FP8E8M0": "UINT8", "FP4E2M1": "UINT8"}
        return core.DataType[plain.get(self.name, self.name)].numpy

    @classmethod
    def of(cls, dtype: Any) -> DataType:
        """Return the data type for one of NumPy or torch. Raises UsageError."""
        if isinstance(dtype, DataType):
            return dtype
        text = str(dtype)
        name = core.DataType.of(text[6:] if text.startswith("torch.") else dtype).name
        name = "FP8E4M3FN" if name == "FLOAT8_E4M3FN" else name
        if name not in cls.__members__:
            raise UsageError(
                f"{name.lower()} is no data type of a tensor; use one of "
                f"{', '.join(one.name for one in cls)}",
                name="dtype",
                value=dtype,
            )
        return cls[name]


class ArgDirection(enum.StrEnum):
    """How an orchestration or a kernel uses an argument."""

    SCALAR = "scalar"
    IN = "in"
    OUT = "out"
    INOUT = "inout"


def scalar_to_uint64(value: Any) -> int:
    """Return the 64 bits of a scalar: a float becomes a float32, an int is extended by its sign."""
    plain = getattr(value, "value", value)
    if hasattr(plain, "item"):  # a scalar of NumPy or torch
        plain = plain.item()
    if isinstance(plain, float):
        bits: int = struct.unpack("<I", struct.pack("<f", plain))[0]
        return bits
    return int(plain) & 0xFFFF_FFFF_FFFF_FFFF


@dataclass
class RuntimeEnv:
    """The sizes of the rings of a run: one number, or one for each of the four rings.

    0 selects the size of the settings (``PTO2_RING_TASK_WINDOW``, ``_HEAP``, ``_DEP_POOL``).
    """

    ring_task_window: int | Sequence[int] = 0
    ring_heap: int | Sequence[int] = 0
    ring_dep_pool: int | Sequence[int] = 0

    def settings(self) -> dict[str, str]:
        """Return the settings of a device with these sizes."""
        named = {name.replace("ring_", "pto2."): value for name, value in vars(self).items()}
        return {
            name: ",".join(map(str, value)) if isinstance(value, Sequence) else str(value)
            for name, value in named.items()
            if value
        }


@dataclass
class CallConfig:
    """The options of one run. The ``enable_*`` fields are those of :class:`pto_core.CallConfig`.

    ``enable_chip_swimlane`` is there ``enable_l2_swimlane``, and ``enable_dump_args`` is
    ``enable_dump_tensor``.
    """

    block_dim: int = 0
    aicpu_thread_num: int = 3
    enable_chip_swimlane: int = 0
    enable_dump_args: int = 0
    enable_pmu: int = 0
    enable_dep_gen: int = 0
    enable_scope_stats: int = 0
    output_prefix: str = ""
    runtime_env: RuntimeEnv = field(default_factory=RuntimeEnv)

    def validate(self) -> None:
        """Raise UsageError if a field has an invalid value."""
        self.core()

    def core(self) -> core.CallConfig:
        """Return the options in the form of the core."""
        values = list(vars(self).values())[:-1]  # the fields of both are in the same order
        return core.CallConfig(*values)


@dataclass(eq=False)
class Buffer:
    """Memory that tensors lie in. ``base`` is its address.

    ``memory``: bytes of this host, memory of a device, or memory of a heap ring; None for memory of
    the chip ``worker`` of a Worker of level 3. ``device``: the device that allocated it, or None.
    """

    base: int
    nbytes: int
    memory: Any = None
    device: core.Device | None = None
    worker: int | None = None

    @classmethod
    def over(cls, values: Any) -> Buffer:
        """Return a buffer over the memory of a contiguous torch tensor or other array."""
        array = bytes_of(values)
        return cls(array.ctypes.data, array.nbytes, array)

    def tensor(
        self,
        shapes: Iterable[int],
        dtype: Any = DataType.FLOAT32,
        strides: Iterable[int] | None = None,
        byte_offset: int = 0,
    ) -> Tensor:
        """Return a tensor that begins ``byte_offset`` bytes from the start of the buffer.

        ``strides`` are in elements; without them, the tensor is contiguous.
        """
        shape = tuple(map(int, shapes))
        steps = tuple(strides or _contiguous(shape))
        found = Tensor(self, shape, DataType.of(dtype), steps, byte_offset)
        last = sum((n - 1) * step for n, step in zip(shape, found.strides, strict=True))
        end = byte_offset + (last + 1) * found.dtype.numpy.itemsize if prod(shape) else byte_offset
        if byte_offset < 0 or end > self.nbytes or any(step <= 0 for step in found.strides):
            raise UsageError(
                f"a tensor with shape {shape}, strides {found.strides} and byte offset "
                f"{byte_offset} does not lie in its buffer of {self.nbytes} bytes; strides must be "
                "positive",
                name="shapes",
                value=shape,
            )
        return found

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The bytes of a buffer on this host, for ``numpy.asarray``."""
        if not isinstance(self.memory, np.ndarray):
            raise AttributeError("memory of a chip has no address on this host; use copy_from")
        found: dict[str, Any] = self.memory.__array_interface__
        return found


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) or 1 for axis in range(len(shape)))


@dataclass(eq=False)
class Tensor:
    """A part of a buffer, without an address of its own; :meth:`Buffer.tensor` creates it."""

    buffer: Buffer
    shapes: tuple[int, ...]
    dtype: DataType
    strides: tuple[int, ...]
    byte_offset: int

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements have no gaps, the last dimension fastest."""
        return self.strides == _contiguous(self.shapes)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return prod(self.shapes) * self.dtype.numpy.itemsize

    def of(self, content: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return this part of the bytes of its buffer, as an array."""
        size = self.dtype.numpy.itemsize
        steps = [step * size for step in self.strides]
        found: npt.NDArray[Any] = np.ndarray(
            self.shapes, self.dtype.numpy, content, self.byte_offset, steps
        )
        return found


class ChipTensor(Tensor):
    """A contiguous tensor at an address: of this host, or with ``device`` of the chip."""

    def __init__(
        self, address: int, shapes: Iterable[int], dtype: Any, *, device: bool = False
    ) -> None:
        shape, element = tuple(map(int, shapes)), DataType.of(dtype)
        nbytes = prod(shape) * element.numpy.itemsize
        memory = None
        if not device:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        super().__init__(Buffer(address, nbytes, memory), shape, element, _contiguous(shape), 0)


class _Memory:
    """The memory of a torch tensor, which stays allocated as long as an array on it exists."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": (tensor.numel() * tensor.element_size(),),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_of(values: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a torch tensor, an array, a buffer or bytes. Raises UsageError."""
    if isinstance(values, bytes | bytearray | memoryview):
        return np.frombuffer(values, np.uint8)
    is_torch = hasattr(values, "data_ptr")
    array = None if is_torch else np.asarray(values)
    if not (values.is_contiguous() if array is None else array.flags.c_contiguous):
        raise UsageError("an array is not contiguous; pass a contiguous copy of it", name="tensor")
    if array is None:
        return np.asarray(_Memory(values.detach()))
    return array.reshape(-1).view(np.uint8)


def tensor_over(values: Any, shapes: Iterable[int] | None = None, dtype: Any = None) -> Tensor:
    """Return a tensor over a torch tensor, an array or a buffer, by default of its shape."""
    if isinstance(values, Tensor):
        return values
    buffer = values if isinstance(values, Buffer) else Buffer.over(values)
    shape = getattr(values, "shape", (buffer.nbytes,)) if shapes is None else shapes
    element = getattr(values, "dtype", DataType.UINT8) if dtype is None else dtype
    return buffer.tensor(shape, element)


class TaskArgs:
    """The arguments of a run or a task: tensors with tags, and the bits of scalars."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.tags: list[TensorArgType] = []
        self.scalars: list[int] = []

    def add_tensor(self, tensor: Any, tag: TensorArgType = TensorArgType.INPUT) -> None:
        """Add a tensor, or a torch tensor or array whose memory the run uses."""
        self.tensors.append(tensor_over(tensor))
        self.tags.append(TensorArgType(tag))

    def add_scalar(self, value: Any) -> None:
        """Add a scalar: its 64 bits, or a number whose bits :func:`scalar_to_uint64` returns."""
        self.scalars.append(scalar_to_uint64(value))

    def tensor_count(self) -> int:
        """Return the number of tensors."""
        return len(self.tensors)

    def scalar_count(self) -> int:
        """Return the number of scalars."""
        return len(self.scalars)

    def tensor(self, index: int) -> Tensor:
        """Return a tensor."""
        return self.tensors[index]

    def tag(self, index: int) -> TensorArgType:
        """Return the tag of a tensor."""
        return self.tags[index]

    def scalar(self, index: int) -> int:
        """Return the 64 bits of a scalar."""
        return self.scalars[index]


ChipStorageTaskArgs = TaskArgs
"""Arguments whose tensors are :class:`ChipTensor` objects."""


@dataclass(frozen=True)
class CommBufferSpec:
    """A part of the window of each chip of a domain: ``count`` elements, or ``nbytes`` bytes."""

    name: str
    dtype: Any = DataType.FLOAT32
    count: int = 0
    nbytes: int = 0

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.nbytes or self.count * DataType.of(self.dtype).numpy.itemsize


class CoreCallable(core.CoreCallable[...]):
    """A kernel. Each submit states the type of its core."""

    @classmethod
    def build(
        cls, signature: Iterable[ArgDirection], binary: bytes | str | os.PathLike[str]
    ) -> CoreCallable:
        """Return a kernel from the bytes of its library, or from the path of the library."""
        list(signature)  # a C++ kernel is called with the arguments of its task as they are
        return cls(_library(binary), "any")


class ChipCallable(core.ChipCallable):
    """An orchestration with its kernels."""

    @classmethod
    def build(
        cls,
        signature: Iterable[ArgDirection],
        func_name: str,
        binary: bytes | str | os.PathLike[str],
        children: Iterable[tuple[int, core.CoreCallable[...]]] = (),
        config_name: str = "",
    ) -> ChipCallable:
        """Return a callable from the bytes of the library of its orchestration.

        ``signature``: the directions of the tensors; a tensor that is IN is not copied back.
        Without it, all tensors are copied in both directions. ``config_name`` has no effect: the
        library finds its config function itself.
        """
        kernels = [(func_id, _named(kernel, func_id)) for func_id, kernel in children]
        if len(kernels) > _MOST_CHILDREN:
            raise UsageError(
                f"{func_name} has {len(kernels)} children; pass at most {_MOST_CHILDREN}",
                name="children",
                value=len(kernels),
            )
        listed = [one.value for one in signature if one is not ArgDirection.SCALAR]
        name = func_name or config_name or None
        return cls(_library(binary), kernels, listed or None, name)


def _named(kernel: core.CoreCallable[...], func_id: int) -> core.CoreCallable[...]:
    """Return a kernel with a name: that of its source or file, or one with its ``func_id``."""
    path = kernel.binary
    if not isinstance(path, Path) or path.parent != _folder() or kernel.name != path.stem:
        return kernel
    name = NAMES.get(path.stem, f"kernel_{func_id}")
    return CoreCallable(path, kernel.core_type, kernel.signature, name)


NAMES: dict[str, str] = {}
"""The names of the sources of libraries, by :func:`digest_of` of their bytes."""


def digest_of(binary: bytes) -> str:
    """Return the name of the file of a library that is given by its bytes."""
    return hashlib.sha256(binary).hexdigest()[:32]


def _library(binary: bytes | str | os.PathLike[str]) -> Path:
    """Return the path of a library that is given by its bytes or its path."""
    if not isinstance(binary, bytes | bytearray):
        if isinstance(binary, str | os.PathLike):
            return Path(binary)
        raise UsageError(
            f"binary is {shown(binary)}; pass the bytes that KernelCompiler returned", name="binary"
        )
    path = _folder() / f"{digest_of(binary)}.so"
    if not path.exists():
        with replacing(path) as file:
            file.write(binary)
    return path


@cache
def _folder() -> Path:
    """Return the folder of libraries that are given by their bytes; the program removes it."""
    folder, owner = tempfile.mkdtemp(prefix="pto-simpler-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
