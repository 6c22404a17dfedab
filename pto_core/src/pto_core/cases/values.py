"""View the arrays and scalars that ``generate_inputs`` returns, without copying them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from pto_core._native import number
from pto_core.errors import UsageError
from pto_core.kernels import DataType


@dataclass(frozen=True)
class Tensor:
    """A tensor argument: ``value`` is the user's object, ``array`` a view of its memory."""

    name: str
    value: Any
    array: np.ndarray[Any, Any]

    def copied(self) -> Any:
        """Return a copy: a torch tensor for a torch tensor, otherwise an array."""
        if _is_torch(self.value):
            return self.value.detach().clone()
        return self.array.copy()


@dataclass(frozen=True)
class Scalar:
    """A scalar argument: a number of Python, ctypes or NumPy."""

    name: str
    value: Any


def as_argument(name: str, value: Any, where: str) -> Tensor | Scalar:
    """Wrap one value. Raises a UsageError with its name if it is neither tensor nor scalar."""
    try:
        is_scalar = number(value) is not None
    except UsageError:
        raise _wrong(name, f"the int {value}", where, "a number of at most 64 bits") from None
    if is_scalar:
        return Scalar(name, value)
    is_other_scalar = isinstance(value, np.generic | ctypes._SimpleCData)
    array = None if is_other_scalar else as_array(value)
    if array is None:
        raise _wrong(name, type(value).__name__, where, "an array, a tensor or a number")
    _check_type(name, array, where)
    return Tensor(name, value, array)


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return a view of a tensor of any kind as an array; None if the value is not a tensor."""
    if isinstance(value, np.ndarray):
        return value
    if _is_torch(value):
        return _torch_view(value)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value)
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError):
        return None


def contiguous(tensor: Tensor, *, written: bool, where: str) -> Tensor:
    """Return a contiguous tensor: a copy if needed; UsageError for an output (``written``)."""
    array = tensor.array
    if written and not array.flags.writeable:
        raise _wrong(tensor.name, "a read-only array", where, "an output that can be written")
    if array.flags.c_contiguous:
        return tensor
    if written:
        shown = f"an array of shape {array.shape} with strides {array.strides}"
        way = "tensor.contiguous()" if _is_torch(tensor.value) else "numpy.ascontiguousarray(array)"
        raise _wrong(tensor.name, shown, where, f"a contiguous output; return {way} in its place")
    return Tensor(tensor.name, tensor.value, np.ascontiguousarray(array))


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _torch_view(tensor: Any) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise UsageError(
            f"a tensor is on the device {tensor.device}; move it to host memory with .cpu()",
            name="device",
            value=str(tensor.device),
            expected="cpu",
        )
    if str(tensor.dtype) != "torch.bfloat16":
        array: np.ndarray[Any, Any] = tensor.numpy()
        return array
    import ml_dtypes

    torch = import_module("torch")

    bits: np.ndarray[Any, Any] = tensor.view(torch.int16).numpy()
    return bits.view(ml_dtypes.bfloat16)


def _dlpack_view(value: Any) -> np.ndarray[Any, Any]:
    """View the memory of a DLPack exporter. Memory is writable unless it is marked as read-only."""
    array = np.from_dlpack(value)
    if array.flags.writeable or not array.flags.c_contiguous:
        return array
    try:
        versioned = "versioned" in repr(value.__dlpack__(max_version=(1, 0)))
    except TypeError:
        versioned = False
    if versioned:
        return array
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory._owner = value  # type: ignore[attr-defined]  # lives as long as the view
    whole: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(array.dtype)
    return whole.reshape(array.shape)


def _check_type(name: str, array: np.ndarray[Any, Any], where: str) -> None:
    if not array.dtype.isnative:
        raise _wrong(name, f"an array of {array.dtype.str}", where, "the machine's byte order")
    try:
        DataType.of(array.dtype)
    except UsageError:
        known = ", ".join(member.name.lower() for member in DataType)
        what = f"an array of {array.dtype}"
        raise _wrong(name, what, where, f"one of {known}") from None


def _wrong(name: str, what: str, where: str, expected: str) -> UsageError:
    return UsageError(
        f"{where}: {name!r} is {what}; expected {expected}",
        name=name,
        value=what,
        expected=expected,
    )
