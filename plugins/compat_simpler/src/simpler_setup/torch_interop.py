"""Tensors of torch as arguments of tasks. NumPy arrays are accepted, too."""

from __future__ import annotations

from typing import Any

from pto_compat_simpler.task_interface import ChipTensor, DataType
from pto_core.errors import UsageError


def torch_dtype_to_datatype(dtype: Any) -> DataType:
    """Return the data type for one of torch, such as ``torch.float32``. Raises UsageError."""
    name = str(dtype).removeprefix("torch.").upper()
    if name not in DataType.__members__:
        known = ", ".join(one.lower() for one in DataType.__members__)
        raise UsageError(f"{dtype} is not a data type of a device; use one of {known}")
    return DataType[name]


def make_tensor_arg(worker: Any, tensor: Any) -> Any:
    """Return the argument of a task of ``worker`` for a tensor, which stays where it is."""
    dtype = torch_dtype_to_datatype(tensor.dtype)
    return worker.make_tensor_arg(tensor, tuple(tensor.shape), dtype)


def make_chip_tensor_arg(tensor: Any) -> ChipTensor:
    """Return a tensor at the address of a contiguous tensor, which must stay allocated."""
    address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.ctypes.data
    return ChipTensor(address, tensor.shape, torch_dtype_to_datatype(tensor.dtype))
