"""Tensors of other programs in the memory of the device, through DLPack, and their streams.

A backend states the DLPack type of its devices in ``dlpack_device_type``. A tensor there is passed
to a run as its address, as an int. Nothing is copied.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pto_core import _native
from pto_core._native import integer
from pto_core.errors import UnsupportedError, UsageError
from pto_core.errors.values import invalid_value
from pto_core.interfaces import TensorSharingBackend

_API = ctypes.pythonapi
_API.PyCapsule_GetPointer.restype = ctypes.c_void_p
_API.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


class DeviceAddress(int):
    """The address of a tensor in device memory. A run accepts it where an array is declared."""


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def addresses_of(
    args: tuple[Any, ...], device_type: int, number: int
) -> tuple[tuple[Any, ...], list[Any]]:
    """Replace the tensors on devices of a type by their addresses.

    Also returns the DLPack capsules, which keep the memory of the tensors: release them after the
    run. Raises UsageError for a tensor on a device with another number, and for a tensor that is
    not C-contiguous.
    """
    replaced, kept = list(args), []
    for position, arg in enumerate(args):
        find = getattr(arg, "__dlpack_device__", None)
        if find is None or isinstance(arg, type) or int(find()[0]) != device_type:
            continue
        kept.append(capsule := arg.__dlpack__())
        tensor = _Tensor.from_address(_API.PyCapsule_GetPointer(capsule, b"dltensor"))
        if tensor.device_id != number:
            raise UsageError(
                f"argument {position} is on device {tensor.device_id}, but the run is on device "
                f"{number}; copy it there, or open device {tensor.device_id}"
            )
        if not _is_contiguous(tensor):
            raise UsageError(
                f"argument {position} is not C-contiguous; pass a C-contiguous copy on the device"
            )
        replaced[position] = DeviceAddress(tensor.data + tensor.byte_offset)
    return tuple(replaced), kept


def handle_of(stream: object, device: _native.Device, backend: TensorSharingBackend | None) -> int:
    """Return the vendor's handle of a stream: an int, or an object with the backend's attribute.

    Raises UsageError for another value, and UnsupportedError if the device has no streams.
    """
    if not device.has_streams:
        raise UnsupportedError(
            "the backend of this device cannot wait for a stream of another program; omit stream, "
            "and run after the data are written",
            name="stream",
            value=stream,
        )
    attribute = backend.stream_attribute if backend is not None else ""
    handle = getattr(stream, attribute, None) if attribute else None
    handle = stream if handle is None else handle
    number = integer(handle, 1, 2**63 - 1)
    if number is not None:
        return number
    objects = f", or an object with the attribute {attribute!r}" if attribute else ""
    raise invalid_value("stream", stream, f"pass the handle of a stream as a positive int{objects}")


def _is_contiguous(tensor: _Tensor) -> bool:
    expected = 1
    for axis in reversed(range(tensor.ndim if tensor.strides else 0)):
        extent = tensor.shape[axis]
        if extent == 0:
            return True
        if extent != 1 and tensor.strides[axis] != expected:
            return False
        expected *= extent
    return True
